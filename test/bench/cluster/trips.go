package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
)

// end is what the servers are told when all has been asked.
const end = "that was all"

// trips counts the commands that the servers of a side are sent while do runs; those that scripts give are not among them.
func (s *side) trips(ctx context.Context, do func()) (sum int, err error) {
	counts, errs := make([]int, len(s.nodes)), make([]error, len(s.nodes))
	var listening sync.WaitGroup
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for i, n := range s.nodes {
		conn, err := n.monitor(ctx)
		if err != nil {
			return 0, err
		}
		conns = append(conns, conn)
		listening.Go(func() { counts[i], errs[i] = countTo(bufio.NewReader(conn)) })
	}
	do()
	for _, n := range s.nodes {
		if err := n.client.Do(ctx, "ECHO", end).Err(); err != nil {
			return 0, err
		}
	}
	listening.Wait()
	for _, count := range counts {
		sum += count
	}
	return sum, errors.Join(errs...)
}

// countTo counts lines of MONITOR such as
//
//	+1700000000.000000 [0 127.0.0.1:41234] "get" "key"
func countTo(lines *bufio.Reader) (count int, err error) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return 0, fmt.Errorf("listen to Redis: %w", err)
		}
		_, origin, _ := strings.Cut(line, "[")
		origin, words, found := strings.Cut(origin, "] ")
		switch {
		case strings.Contains(words, end):
			return count, nil
		case found && !strings.HasSuffix(origin, "lua"):
			count++
		}
	}
}

// monitor has a server say what it is sent, from now on.
func (n *node) monitor(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.server.Addr())
	if err != nil {
		return nil, err
	}
	err = conn.SetDeadline(time.Now().Add(process.Patience))
	if err == nil {
		_, err = conn.Write([]byte("MONITOR\r\n"))
	}
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, len("+OK\r\n")))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
