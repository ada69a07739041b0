// Command cluster is `make bench-cluster`: it puts the same load on a Redis Cluster of three primaries and on a single Redis, and checks
// every answer of the cluster, how evenly its servers are used, what each request costs beside the single server, what
// happens to callers while a bucket moves, and how much memory the records take.
//
//	bench-cluster [-binary bin/merchant-operator] [-output bin/bench-cluster.json] [-merchants 960]
//	bench-cluster -splits    only prints how buckets fall on so many primaries
//
// BENCH_SECONDS is the length of one measurement, BENCH_ROUNDS how often each is repeated. KUBEBUILDER_ASSETS names the directory of
// kube-apiserver and etcd. The page docs/performance/scale.md tells what follows from it.
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
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-cluster:", err)
		os.Exit(1)
	}
}

// settings of a run.
type settings struct {
	binary, output string
	merchants      int
	rounds         int
	length         time.Duration // of one measurement
	warmUp         time.Duration // before each
	splits         bool
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := settingsOf(args)
	if err != nil {
		return err
	}
	if s.splits {
		printSplits(out)
		return nil
	}
	return benchmark(ctx, s, out)
}

func settingsOf(args []string) (settings, error) {
	s := settings{rounds: 3, length: time.Second, warmUp: 250 * time.Millisecond}
	flags := flag.NewFlagSet("bench-cluster", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", "bin/merchant-operator", "the product")
	flags.StringVar(&s.output, "output", "bin/bench-cluster.json", "where to write what was measured")
	flags.IntVar(&s.merchants, "merchants", 960, "how many merchants charge")
	flags.BoolVar(&s.splits, "splits", false, "only print how buckets fall on primaries")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.merchants < 2 {
		return s, errors.New("-merchants: want two at least")
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
	return s, nil
}
