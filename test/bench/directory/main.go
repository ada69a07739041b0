// Command directory is `make bench-directory`: it publishes 100,000 keys on a real kube-apiserver and measures what they cost a replica of
// the API: memory, time until it is ready, and requests, beside a replica that knows a hundred.
//
//	bench-directory [-keys 100000] [-merchants 1000] [-binary bin/merchant-operator] [-output bin/bench-directory.json]
//
// KUBEBUILDER_ASSETS names the directory of kube-apiserver and etcd. The page docs/performance/directory.md tells what is
// measured, and why so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	settings, err := settingsOf(os.Args[1:])
	if err == nil {
		err = benchmark(ctx, settings, os.Stdout)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-directory:", err)
		os.Exit(1)
	}
}

// settings of a run.
type settings struct {
	binary, output  string
	keys, merchants int
	// few is how many keys the other replica knows.
	few int
	// starts, rounds and bursts are how often each thing is measured.
	starts, rounds, bursts int
	// changes are how many keys change in a burst.
	changes int
	length  time.Duration // of one measurement
}

// most is the longest a run may take, on however busy a machine.
const most = 15 * time.Minute

func settingsOf(args []string) (settings, error) {
	s := settings{few: 100, changes: 1000, length: time.Second}
	flags := flag.NewFlagSet("bench-directory", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", "bin/merchant-operator", "the product")
	flags.StringVar(&s.output, "output", "bin/bench-directory.json", "where to write what was measured")
	flags.IntVar(&s.keys, "keys", 100_000, "how many keys one replica knows; the other one knows 100")
	flags.IntVar(&s.merchants, "merchants", 1000, "how many merchants they are of")
	flags.IntVar(&s.starts, "starts", 3, "how often each replica is started")
	flags.IntVar(&s.rounds, "rounds", 7, "how often each kind of request is measured")
	flags.IntVar(&s.bursts, "bursts", 9, "how many bursts of changes there are")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.starts < 1 || s.rounds < 1 || s.bursts < 1 {
		return s, errors.New("-starts, -rounds and -bursts are at least 1")
	}
	if s.merchants < 1 || s.keys < 2*s.changes {
		return s, fmt.Errorf("-merchants is at least 1, -keys %d", 2*s.changes)
	}
	return s, nil
}
