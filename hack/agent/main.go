// Command agent is what the end-to-end tests have inside the cluster: it makes requests as a till or a payer's browser
// would, keeps up a steady load and counts what fails, receives webhooks, and can stand between two others. The tests
// tell it what to do through the Kubernetes API's proxy to pods, so that they need no way into the cluster's network.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = "usage: agent serve ADDRESS | agent forward ADDRESS TARGET"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1])
	case len(args) == 3 && args[0] == "forward":
		return forward(ctx, args[1], args[2])
	default:
		return errors.New(usage)
	}
}

func serve(ctx context.Context, address string) error {
	var load load
	var inbox inbox
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /do", do)
	mux.HandleFunc("POST /load", load.start)
	mux.HandleFunc("GET /load", load.report)
	mux.HandleFunc("DELETE /load", load.stop)
	mux.HandleFunc("POST /hooks", inbox.receive)
	mux.HandleFunc("GET /hooks", inbox.list)

	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// forward stands between those who connect to address and target. Its end is the end of all their connections.
func forward(ctx context.Context, address, target string) error {
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	for {
		caller, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go join(ctx, caller, target)
	}
}

func join(ctx context.Context, caller net.Conn, target string) {
	defer func() { _ = caller.Close() }()
	var dialer net.Dialer
	called, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = called.Close() }()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{caller, called}, {called, caller}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // whatever ended it, it has ended
			ended <- struct{}{}
		}()
	}
	<-ended
}
