package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"

	"github.com/merchant-operator/merchant-operator/test/bench/floor"
	"github.com/merchant-operator/merchant-operator/test/bench/naive"
)

// order is what a server of this program is told when it starts.
type order struct {
	// Naive is the address of the Redis of the naive service; empty: serve the floors of Plan.
	Naive string     `json:"naive"`
	Plan  floor.Plan `json:"plan"`
}

// mallocsPath tells how many allocations the server has made.
const mallocsPath = "/mallocs"

// serve reads an order, serves on an address of its own choice, and writes that address as a line.
func serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var told order
	if err := json.NewDecoder(in).Decode(&told); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	if told.Naive == "" {
		// The floors collect garbage as seldom as the product does. It is a setting, and no work that the product saves.
		defer runtime.KeepAlive(make([]byte, 32<<20))
	}
	handler, err := handlerOf(told)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.HandleFunc("GET "+mallocsPath, tellMallocs)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux}
	ignore := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer ignore()
	fmt.Fprintln(out, listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func handlerOf(told order) (http.Handler, error) {
	if told.Naive != "" {
		return naive.New(told.Naive), nil
	}
	return floor.Handler(told.Plan)
}

func tellMallocs(w http.ResponseWriter, _ *http.Request) {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	fmt.Fprintf(w, "%s %d\n", mallocsMetric, stats.Mallocs)
}
