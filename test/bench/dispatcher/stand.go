package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/apiserver/store"
	"github.com/merchant-operator/merchant-operator/test/bench/process"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// stand is everything that runs while it is measured.
type stand struct {
	settings  settings
	directory string
	log       *os.File
	client    *redis.Client
	store     *store.Store
	redisPID  int

	merchants  []string // ids
	receipts   receipts
	dispatcher *process.Process
	metrics    string // URL of the dispatcher's

	closers []func() error
}

func newStand(ctx context.Context, settings settings) (s *stand, err error) {
	s = &stand{settings: settings}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.directory, err = os.MkdirTemp("", "bench-dispatcher"); err != nil {
		return s, err
	}
	s.onStop(func() error { return os.RemoveAll(s.directory) })
	if s.log, err = os.Create(filepath.Join(filepath.Dir(settings.output), "bench-dispatcher.log")); err != nil {
		return s, err
	}
	s.onStop(s.log.Close)
	server, stopRedis, err := redistest.New() //nolint:contextcheck // stopped by its own function
	if err != nil {
		return s, err
	}
	s.onStop(func() error { stopRedis(); return nil })
	if err := s.openRedis(ctx, server); err != nil {
		return s, err
	}
	cluster, stopCluster, err := kubetest.New()
	if err != nil {
		return s, err
	}
	s.onStop(stopCluster)
	endpoints, err := s.startReceiver(ctx)
	if err != nil {
		return s, err
	}
	if s.merchants, err = publish(ctx, cluster.Config, endpoints); err != nil {
		return s, err
	}
	kubeconfig := filepath.Join(s.directory, "kubeconfig")
	if err := os.WriteFile(kubeconfig, cluster.KubeConfig, 0o600); err != nil {
		return s, err
	}
	err = s.startDispatcher(ctx, kubeconfig, server.URL())
	return s, err
}

// onStop has do done when the stand stops, the last first.
func (s *stand) onStop(do func() error) { s.closers = append(s.closers, do) }

func (s *stand) stop() error {
	var errs []error
	for _, closer := range slices.Backward(s.closers) {
		errs = append(errs, closer())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// start runs a program, which ends with the stand.
func (s *stand) start(ctx context.Context, in io.Reader, program string, args ...string) (*process.Process, io.Reader, error) {
	started, out, err := process.Start(ctx, s.log, in, program, args...)
	if err != nil {
		return nil, nil, err
	}
	s.onStop(func() error { started.Stop(); return nil })
	return started, out, nil
}

// startSelf runs this program in another of its parts, and returns the first line it writes.
func (s *stand) startSelf(ctx context.Context, in io.Reader, word string) (*process.Process, *bufio.Reader, []byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	started, out, err := s.start(ctx, in, self, word)
	if err != nil {
		return nil, nil, nil, err
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return nil, nil, nil, fmt.Errorf("start to %s: %w; its log is %s", word, err, s.log.Name())
	}
	return started, lines, first, nil
}

func (s *stand) startReceiver(ctx context.Context) (endpoints []string, err error) {
	_, _, line, err := s.startSelf(ctx, nil, receiveWord)
	if err != nil {
		return nil, err
	}
	var where address
	if err := json.Unmarshal(line, &where); err != nil {
		return nil, fmt.Errorf("read where the receiver is: %w", err)
	}
	s.receipts = receipts{where.Control}
	return where.Endpoints, nil
}

// startDispatcher starts one replica and waits until it has delivered an event of each merchant.
func (s *stand) startDispatcher(ctx context.Context, kubeconfig, redisURL string) error {
	port, err := freeport.Choose()
	if err != nil {
		return err
	}
	ops := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s.metrics = "http://" + ops + "/metrics"
	args := append([]string{
		"dispatcher", "--kubeconfig", kubeconfig, "--credentials-namespace", credentialsNamespace, "--redis-url", redisURL,
		"--ops-address", ops, "--webhook-allow-http", "--webhook-allow-cidrs", "127.0.0.0/8",
		"--webhook-concurrency", strconv.Itoa(perEndpoint),
	}, s.settings.flags...)
	if s.dispatcher, _, err = s.start(ctx, nil, s.settings.binary, args...); err != nil {
		return err
	}
	s.onStop(s.resume)
	sessions, err := s.create(ctx, merchants)
	if err != nil {
		return err
	}
	if err := s.cancel(ctx, sessions); err != nil {
		return err
	}
	return s.receipts.await(ctx, merchants)
}
