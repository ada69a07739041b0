// Command bench is `make bench`: it measures the product beside what nobody can do without (the floors) and beside what most teams would
// write (the naive service), in turn on the same machine, so that what it says is ratios and not the machine's speed.
//
//	bench [-binary bin/merchant-operator] [-output bench.json]
//
// BENCH_SECONDS is the length of one measurement, BENCH_ROUNDS how often each is repeated. KUBEBUILDER_ASSETS names the directory of
// kube-apiserver and etcd. The page docs/performance/README.md tells what is measured, and why so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// serveWord makes this program one of the servers that are measured.
const serveWord = "serve"

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) > 0 && args[0] == serveWord {
		return serve(ctx, in, out)
	}
	settings, err := settingsOf(args)
	if err != nil {
		return err
	}
	return benchmark(ctx, settings, out)
}

// settings of a run.
type settings struct {
	binary, output string
	rounds         int
	length         time.Duration // of one measurement
	warmUp         time.Duration // before each
	openLoop       time.Duration // length of one measurement at a constant rate
	only           string
}

// connections are how many clients ask at once.
var connections = [...]int{16, 128} //nolint:gochecknoglobals // a constant

func settingsOf(args []string) (settings, error) {
	s := settings{rounds: 5, length: time.Second, warmUp: 250 * time.Millisecond}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", "bin/merchant-operator", "the product")
	flags.StringVar(&s.output, "output", "bin/bench.json", "where to write what was measured")
	flags.StringVar(&s.only, "only", "", "measure but these, comma-separated; for work on one of them")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if text := os.Getenv("BENCH_SECONDS"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil || seconds <= 0 {
			return s, fmt.Errorf("BENCH_SECONDS=%q: want a number of seconds", text)
		}
		s.length = time.Duration(seconds * float64(time.Second))
	}
	if text := os.Getenv("BENCH_ROUNDS"); text != "" {
		rounds, err := strconv.Atoi(text)
		if err != nil || rounds < 1 {
			return s, fmt.Errorf("BENCH_ROUNDS=%q: want a number", text)
		}
		s.rounds = rounds
	}
	s.openLoop = 2 * s.length
	return s, nil
}
