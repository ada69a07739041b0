package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/test/bench/floor"
	"github.com/merchant-operator/merchant-operator/test/bench/process"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// stand is everything that runs while it is measured.
type stand struct {
	directory string
	log       *os.File
	cluster   *envtest.Environment
	redis     *redistest.Server
	redisPID  int
	redisPort int
	plan      floor.Plan
	client    *redis.Client
	key       string // the API key
	session   string // id of the session that is read
	kept      map[string]keptKey

	product, floors, naive *server

	closers []func() error
}

func newStand(ctx context.Context, settings settings) (s *stand, err error) {
	s = &stand{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.directory, err = os.MkdirTemp("", "bench"); err != nil {
		return s, err
	}
	s.onStop(func() error { return os.RemoveAll(s.directory) })
	if s.log, err = os.Create(filepath.Join(filepath.Dir(settings.output), "bench.log")); err != nil {
		return s, err
	}
	s.onStop(s.log.Close)
	cluster, stopCluster, err := kubetest.New()
	if err != nil {
		return s, err
	}
	s.cluster = cluster
	s.onStop(stopCluster)
	server, stopRedis, err := redistest.New() //nolint:contextcheck // stopped by its own function
	if err != nil {
		return s, err
	}
	s.redis = server
	s.onStop(func() error { stopRedis(); return nil })
	s.client = newRedisClient(server.Addr())
	s.onStop(s.client.Close)
	if err := s.identifyRedis(ctx); err != nil {
		return s, err
	}
	if s.key, err = publish(ctx, cluster.Config); err != nil {
		return s, err
	}
	if err := s.startProduct(ctx, settings.binary); err != nil {
		return s, err
	}
	if err := s.startOthers(ctx); err != nil {
		return s, err
	}
	return s, nil
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

// startProduct starts one replica of the API with the published objects of the cluster.
func (s *stand) startProduct(ctx context.Context, binary string) error {
	kubeconfig := filepath.Join(s.directory, "kubeconfig")
	if err := os.WriteFile(kubeconfig, s.cluster.KubeConfig, 0o600); err != nil {
		return err
	}
	var addresses [3]string
	for i := range addresses {
		port, err := freeport.Choose()
		if err != nil {
			return err
		}
		addresses[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	const unlimited = "1000000"
	started, _, err := s.start(ctx, binary, nil, "apiserver",
		"--kubeconfig", kubeconfig, "--credentials-namespace", credentialsNamespace, "--redis-url", s.redis.URL(),
		"--public-address", addresses[0], "--internal-address", addresses[1], "--ops-address", addresses[2],
		"--public-rate", unlimited, "--public-burst", unlimited,
		"--drain-delay", "0s")
	if err != nil {
		return err
	}
	s.product = started
	started.address, started.statistics = addresses[0], "http://"+addresses[2]+"/metrics"
	return process.Eventually(ctx, func() error {
		_, err := s.ask(ctx, createRequest(s.key))
		return err
	})
}

// startOthers starts the floors, made of what the product is seen to do, and the naive service.
func (s *stand) startOthers(ctx context.Context) error {
	var err error
	if s.plan, err = s.recordPlan(ctx); err != nil {
		return err
	}
	if s.floors, err = s.startWith(ctx, order{Plan: s.plan}); err != nil {
		return err
	}
	if s.naive, err = s.startWith(ctx, order{Naive: s.redis.Addr()}); err != nil {
		return err
	}
	return s.renew(ctx)
}

func (s *stand) startWith(ctx context.Context, told order) (*server, error) {
	text, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	return s.startServer(ctx, bytes.NewReader(text))
}

// recordPlan watches the product create and read a session.
func (s *stand) recordPlan(ctx context.Context) (floor.Plan, error) {
	created, answered, err := s.record(ctx, createRequest(s.key))
	if err != nil {
		return floor.Plan{}, err
	}
	plan := floor.Plan{
		Redis:        s.redis.URL(),
		Create:       floor.Call{Words: created, Session: answered.session()},
		CreateAnswer: answered.body,
	}
	if answered, err = s.ask(ctx, replayRequest(s.key)); err != nil {
		return floor.Plan{}, err
	}
	s.session = answered.session()
	if err := s.keep(ctx); err != nil {
		return floor.Plan{}, err
	}
	read, answered, err := s.record(ctx, publicRequest(s.session))
	if err != nil {
		return floor.Plan{}, err
	}
	plan.Read, plan.ReadAnswer = floor.Call{Words: read, Session: s.session}, answered.body
	return plan, nil
}

// record makes a request for which the product is to send one command to Redis, and returns that.
func (s *stand) record(ctx context.Context, wanted request) (sent []string, answered answer, err error) {
	if _, err := s.ask(ctx, wanted); err != nil { // Redis may not know the script yet
		return nil, answer{}, err
	}
	all, err := s.trips(ctx, func() (err error) {
		answered, err = s.ask(ctx, wanted)
		return err
	})
	if err != nil {
		return nil, answer{}, err
	}
	if len(all) != 1 {
		return nil, answer{}, fmt.Errorf("the product sent %d commands for one request, not 1: %q", len(all), all)
	}
	return all[0], answered, nil
}
