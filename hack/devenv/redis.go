package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// startRedis starts the server that REDIS_SERVER names, else redis-server, else an embedded substitute.
func (e *environment) startRedis(ctx context.Context) error {
	path, err := redistest.Binary()
	if err != nil && os.Getenv("REDIS_SERVER") != "" {
		return err
	}
	if err != nil {
		return e.startMiniredis(ctx)
	}
	host, port, err := net.SplitHostPort(e.addresses.redis)
	if err != nil {
		return fmt.Errorf("take the port of Redis from its address: %w", err)
	}
	stop, err := e.programs.start("redis", path, "--bind", host, "--port", port, "--dir", e.directory,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction")
	if err != nil {
		return err
	}
	e.onStop("Redis", stop)
	e.redis = path
	return eventually(ctx, "Redis to listen", func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", e.addresses.redis)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (e *environment) startMiniredis(ctx context.Context) error {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(e.addresses.redis); err != nil {
		return fmt.Errorf("start the embedded Redis: %w", err)
	}
	e.onStop("Redis", func() error { server.Close(); return nil })
	e.redis = "embedded, because redis-server is not on the PATH"
	go func() { // its clock stands still otherwise
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				server.FastForward(time.Second)
			}
		}
	}()
	return nil
}
