// Command operator is `make bench-operator`: it times the real operator making many ApiKeys ready on a real kube-apiserver, beside a
// floor that writes the same with raw client-go and does nothing else, and counts what the operator asks of the API server.
//
//	bench-operator [-keys 10000] [-merchants 100] [-binary bin/merchant-operator] [-output bin/bench-operator.json]
//
// KUBEBUILDER_ASSETS names the directory of kube-apiserver and etcd. The page docs/performance/operator.md tells what is
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	settings, err := settingsOf(os.Args[1:])
	if err == nil {
		err = benchmark(ctx, settings, os.Stdout)
	}
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-operator:", err)
		os.Exit(1)
	}
}

// settings of a run.
type settings struct {
	binary, output  string
	merchants, keys int
	// keyWorkers and merchantWorkers are how many the floor works on at a time: as many as the operator.
	keyWorkers, merchantWorkers int
}

func settingsOf(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("bench-operator", flag.ContinueOnError)
	flags.StringVar(&s.binary, "binary", "bin/merchant-operator", "the product")
	flags.StringVar(&s.output, "output", "bin/bench-operator.json", "where to write what was measured")
	flags.IntVar(&s.merchants, "merchants", 100, "how many Merchants")
	flags.IntVar(&s.keys, "keys", 10_000, "how many ApiKeys, shared out among the Merchants")
	flags.IntVar(&s.keyWorkers, "key-workers", 8, "how many ApiKeys the floor works on at a time; the operator's number is compiled in")
	flags.IntVar(&s.merchantWorkers, "merchant-workers", 4, "the same of Merchants")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if s.merchants < 1 || s.keys < 2 || s.keyWorkers < 1 || s.merchantWorkers < 1 {
		return s, errors.New("-merchants, -key-workers and -merchant-workers are at least 1, -keys 2")
	}
	return s, nil
}
