// Command devenv is `make run`: the whole product on this machine, in the foreground, until it is told to stop.
//
// It starts a real kube-apiserver with its etcd, Redis, the operator, two replicas of the API and the dispatcher,
// each role with a service account of its own and no more rights than that one has in a cluster. It applies the
// samples, starts a receiver for the sample merchant's webhooks, writes .dev/env for scripts, and takes everything
// down again in the reverse order.
//
// There are two processes of it: one that the terminal owns, and the one that does the work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
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

// workerFlag marks the second process. It is not for people.
const workerFlag = "worker"

// foreground runs the worker in a session of its own and waits for it. The worker stops when its standard input
// ends: when a signal makes this process close it, and also when this process dies without a chance to do anything,
// as by SIGKILL. So nothing is left behind either way, and Ctrl-C, which a terminal sends to every process of the
// foreground, does not reach the children before their turn.
func foreground() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}

	self, err := os.Executable()
	if err != nil {
		return exitCode(fmt.Errorf("start the worker: %w", err))
	}
	worker := exec.Command(self, "--"+workerFlag) //nolint:noctx // it is stopped through its input
	worker.Stdout, worker.Stderr = os.Stdout, os.Stderr
	worker.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := worker.StdinPipe()
	if err != nil {
		return exitCode(fmt.Errorf("start the worker: %w", err))
	}
	if err := worker.Start(); err != nil {
		return exitCode(fmt.Errorf("start the worker: %w", err))
	}
	go func() {
		for range signals { // a second Ctrl-C changes nothing: the stop has its own deadlines
			_ = input.Close()
		}
	}()

	var exit *exec.ExitError
	switch err := worker.Wait(); {
	case errors.As(err, &exit):
		return max(1, exit.ExitCode())
	case err != nil:
		return exitCode(fmt.Errorf("wait for the worker: %w", err))
	default:
		return 0
	}
}

// untilEndOf is done when input ends.
func untilEndOf(ctx context.Context, input io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, input)
	}()
	return ctx
}

// work brings everything up, waits until stop is done or something fails, and takes everything down again. Being
// asked to stop is no error, not even half-way up.
func work(stop context.Context) error {
	// Nobody may be reading any more; that is no reason to die before the children have stopped.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	root, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	directory := filepath.Join(root, ".dev")
	release, err := claim(directory)
	if err != nil {
		return err
	}
	defer release()

	ctx, fail := context.WithCancelCause(stop)
	defer fail(nil)
	e := newEnvironment(root, directory, fail)
	err = e.up(ctx)
	if err == nil {
		<-ctx.Done()
	}
	if stop.Err() != nil {
		err = nil // whatever was under way then has failed by it
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, e.down())
}

// step says what is being done and, when that took a while, how long.
func step(what string, do func() error) error {
	fmt.Printf("==> %s\n", what)
	begin := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if took := time.Since(begin); took > time.Second {
		fmt.Printf("    took %.1f s\n", took.Seconds())
	}
	return nil
}
