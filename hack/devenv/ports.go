package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// addresses are host:port each. Two replicas: index 0 and 1.
type addresses struct {
	public, internal, ops [2]string
	operatorOps           string
	dispatcherOps         string
	redis, sink           string
}

// chooseAddresses keeps to the ports that --help lists, as far as they are free.
func chooseAddresses(ctx context.Context) (addresses, error) {
	var a addresses
	for _, wanted := range []struct {
		address *string
		port    int
	}{
		{&a.public[0], 8080},
		{&a.public[1], 8082},
		{&a.internal[0], 8081},
		{&a.internal[1], 8083},
		{&a.operatorOps, 9090},
		{&a.ops[0], 9091},
		{&a.ops[1], 9092},
		{&a.dispatcherOps, 9093},
		{&a.sink, 8090},
		{&a.redis, 16379},
	} {
		address, err := freeAddress(ctx, wanted.port)
		if err != nil {
			return addresses{}, err
		}
		*wanted.address = address
	}
	return a, nil
}

func freeAddress(ctx context.Context, preferred int) (string, error) {
	var listeners net.ListenConfig
	listener, err := listeners.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(preferred)))
	if err != nil {
		if listener, err = listeners.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		fmt.Printf("    port %d is taken; using %s instead\n", preferred, listener.Addr())
	}
	address := listener.Addr().String()
	return address, listener.Close()
}
