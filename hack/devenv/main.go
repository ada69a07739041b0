// Command devenv is `make run`: the whole product on this machine, in the foreground, until it is told to stop.
//
// It starts a real kube-apiserver with its etcd, Redis, the operator, two replicas of the API and the dispatcher,
// each role with a service account of its own and no more rights than that one has in a cluster. It applies the
// samples, starts a receiver for the sample merchant's webhooks, writes .dev/env for scripts, and takes everything
// down again in the reverse order.
//
// There are two processes of it (see foreground.go): one that the terminal owns, and the one that does the work.
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

const usage = `Runs merchant-operator on this machine: make run, or bin/devenv from the root of the repository.

  port   what listens on it (on 127.0.0.1; when it is taken, any free one is used instead)
  8080   the API, first replica          $API_URL
  8082   the API, second replica         $API_URL_2
  8081   first replica, for rails        $INTERNAL_URL
  8083   second replica, for rails
  9090   operator: health and metrics
  9091   first replica: health and metrics
  9092   second replica: health and metrics
  9093   dispatcher: health and metrics
  8090   a receiver of webhooks          $WEBHOOK_SINK_URL
  16379  Redis                           $REDIS_URL

  .dev/env          the addresses and a key as shell variables, while it runs: . .dev/env
  .dev/kubeconfig   the administrator's; there is one for each role beside it
  .dev/logs/        what each process says

KUBEBUILDER_ASSETS names the directory of kube-apiserver, etcd and kubectl (make run sets it).
Ctrl-C, SIGTERM and a closed terminal stop it all; nothing is kept.
`

func main() {
	flags := flag.NewFlagSet("devenv", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	worker := flags.Bool(workerFlag, false, "")
	switch err := flags.Parse(os.Args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		os.Exit(2)
	case *worker:
		stop, release := signal.NotifyContext(untilEndOf(context.Background(), os.Stdin), os.Interrupt, syscall.SIGTERM)
		err := work(stop)
		release()
		os.Exit(exitCode(err))
	default:
		os.Exit(foreground())
	}
}

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "\nmake run: %v\n", err)
	return 1
}
