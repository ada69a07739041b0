// Command devenv is `make run`: everything on this machine, in the foreground, until it is stopped.
//
// It starts a real kube-apiserver with etcd, Redis, the operator, two API replicas and the dispatcher, each role with a service
// account and the same rights as in a cluster. It applies config/samples, starts a demo bank, and a webhook receiver for the sample merchant,
// writes .dev/env for scripts, and at the end stops everything in reverse order.
//
// It runs as two processes: one belongs to the terminal, the other one (the worker) starts and stops everything.
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

  port   used for (on 127.0.0.1; if a port is in use, another one is taken)
  8080   the API, first replica          $API_URL
  8082   the API, second replica         $API_URL_2
  8081   internal API, first replica     $INTERNAL_URL
  8083   internal API, second replica
  9090   operator: health, metrics       $OPERATOR_OPS_URL
  9091   first replica: health, metrics  $API_OPS_URL
  9092   second replica: health, metrics $API_OPS_URL_2
  9093   dispatcher: health, metrics     $DISPATCHER_OPS_URL
  9094   console: health, metrics        $CONSOLE_OPS_URL
  8084   console                         $CONSOLE_URL
  8085   OpenID provider of the console
  8086   demo bank of examples/rail      $BANK_URL
  8090   webhook receiver                $WEBHOOK_SINK_URL
  8025   received mails                  $MAIL_SINK_URL
  1025   mail server (SMTP)
  16379  Redis                           $REDIS_URL

  .dev/env          addresses and an API key, while it runs: set -a; . .dev/env; set +a
  .dev/kubeconfig   for the administrator; the roles have their own beside it
  .dev/logs/        the log of each process

KUBEBUILDER_ASSETS names the directory of kube-apiserver, etcd and kubectl (make run sets it).
A role or Redis that is killed is started again. Redis keeps nothing: its sessions, events and limits end with its process.
Ctrl-C, SIGTERM and closing the terminal stop everything. No data is kept.
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
		stop, release := signal.NotifyContext(cancelAtEOF(context.Background(), os.Stdin), os.Interrupt, syscall.SIGTERM)
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

// workerFlag starts the worker. It is not for people.
const workerFlag = "worker"

// foreground runs the worker in a session of its own and waits for it. The worker stops when its standard input ends: this
// process closes it on a signal, and the kernel does when this process is killed. So nothing is left behind, and a terminal's
// Ctrl-C does not reach the other processes before it is their turn.
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
		for range signals { // a second Ctrl-C changes nothing: stopping has its own deadlines
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

// cancelAtEOF returns a context that is done when input ends.
func cancelAtEOF(ctx context.Context, input io.Reader) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, input)
	}()
	return ctx
}

// work starts everything, waits until stop is done or something fails, and stops everything. Being stopped is not an error, also
// not during the start.
func work(stop context.Context) error {
	// A closed pipe must not end this process before its children have stopped.
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
	e := &environment{
		root: root, directory: directory, assets: os.Getenv("KUBEBUILDER_ASSETS"),
		programs: &programs{logs: filepath.Join(directory, "logs"), fail: fail},
	}
	err = e.up(ctx)
	if err == nil {
		<-ctx.Done()
	}
	if stop.Err() != nil {
		err = nil // caused by the stop
	} else if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, e.down())
}

// step prints what is being done and, if it took more than a second, how long.
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
