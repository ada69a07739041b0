// Command bench-dispatcher is `make bench-dispatcher`: it measures what the dispatcher spends on an event beside a bare HTTP client that
// posts the same bytes to the same receivers, how long an event waits for its first attempt, and what a dispatcher at rest costs.
//
//	bench-dispatcher [-binary bin/merchant-operator] [-output bin/bench-dispatcher.json]
//
// BENCH_ROUNDS is how often the dispatcher and the floor are measured in turn, BENCH_EVENTS how many events each time, BENCH_SECONDS the
// length of the other measurements. KUBEBUILDER_ASSETS names the directory of kube-apiserver and etcd. The page
// docs/performance/dispatcher.md tells what is measured, and why so.
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
		fmt.Fprintln(os.Stderr, "bench-dispatcher:", err)
		os.Exit(1)
	}
}

// receiveWord and postWord make this program one of those that take part.
const (
	receiveWord = "receive"
	postWord    = "post"
)

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case receiveWord:
			return receive(ctx, out)
		case postWord:
			return post(ctx, in, out)
		}
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
	rounds, events int
	// length is of the measurements at rest and at a constant rate.
	length time.Duration
	// flags of the dispatcher, for work on one of them.
	flags []string
}

// rest is long enough for what a dispatcher does every 15 seconds.
func (s settings) rest() time.Duration { return s.length * 3 / 2 }

// The load. A merchant has an endpoint of its own; the dispatcher's default is 8 attempts at a time to each.
const (
	merchants   = 64
	perEndpoint = 8
	// constantRate is of events a second, to which a wait is promised.
	constantRate = 500
)

func settingsOf(args []string) (settings, error) {
	s := settings{rounds: 3, events: 20_000, length: 10 * time.Second}
	flags := flag.NewFlagSet("bench-dispatcher", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", "bin/merchant-operator", "the product; what follows is passed to its dispatcher")
	flags.StringVar(&s.output, "output", "bin/bench-dispatcher.json", "where to write what was measured")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	s.flags = flags.Args()
	var err error
	if s.rounds, err = numberFrom("BENCH_ROUNDS", s.rounds); err != nil {
		return s, err
	}
	if s.events, err = numberFrom("BENCH_EVENTS", s.events); err != nil {
		return s, err
	}
	seconds, err := numberFrom("BENCH_SECONDS", int(s.length/time.Second))
	s.length = time.Duration(seconds) * time.Second
	return s, err
}

func numberFrom(variable string, otherwise int) (int, error) {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise, nil
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 {
		return 0, fmt.Errorf("%s=%q: want a whole number above 0", variable, text)
	}
	return number, nil
}
