package main

import (
	"context"
	"errors"
	"io"
	"net"
)

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
