package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/test/bench/process"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// side is one way to keep the sessions, and a replica of the API before it.
type side struct {
	name    string
	nodes   []*node
	replica *process.Process
	address string
	caller  *caller
}

// stand is everything that runs while it is measured.
type stand struct {
	directory  string
	log        *os.File
	kubernetes *envtest.Environment
	merchants  []merchant

	single, cluster *side

	closers []func() error
}

// sides are measured in turn.
func (s *stand) sides() []*side { return []*side{s.single, s.cluster} }

func newStand(ctx context.Context, settings settings) (s *stand, err error) {
	s = &stand{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.directory, err = os.MkdirTemp("", "bench-cluster"); err != nil {
		return s, err
	}
	s.onStop(func() error { return os.RemoveAll(s.directory) })
	if s.log, err = os.Create(filepath.Join(filepath.Dir(settings.output), "bench-cluster.log")); err != nil {
		return s, err
	}
	s.onStop(s.log.Close)
	environment, stopKubernetes, err := kubetest.New()
	if err != nil {
		return s, err
	}
	s.kubernetes = environment
	s.onStop(stopKubernetes)
	if s.merchants, err = publish(ctx, environment.Config, settings.merchants); err != nil {
		return s, err
	}
	if s.single, err = s.newSide(ctx, settings, "single", 1); err != nil {
		return s, err
	}
	s.cluster, err = s.newSide(ctx, settings, "cluster", primaries, "--cluster-enabled", "yes")
	return s, err
}

// newSide starts so many servers of Redis and a replica that keeps its sessions there.
func (s *stand) newSide(ctx context.Context, settings settings, name string, nodes int, extraArgs ...string) (*side, error) {
	made := &side{name: name}
	for range nodes {
		n, stop, err := newNode(ctx, extraArgs...)
		if err != nil {
			return made, err
		}
		s.onStop(stop)
		made.nodes = append(made.nodes, n)
	}
	url := made.nodes[0].server.URL()
	if nodes > 1 {
		if err := joinCluster(ctx, made.nodes); err != nil {
			return made, err
		}
		url = clusterURL(made.nodes)
	}
	return made, s.startReplica(ctx, settings, made, url)
}

func (s *stand) startReplica(ctx context.Context, settings settings, of *side, redisURL string) error {
	kubeconfig := filepath.Join(s.directory, "kubeconfig")
	if err := os.WriteFile(kubeconfig, s.kubernetes.KubeConfig, 0o600); err != nil {
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
	replica, _, err := process.Start(ctx, s.log, nil, settings.binary, "apiserver",
		"--kubeconfig", kubeconfig, "--credentials-namespace", credentialsNamespace, "--redis-url", redisURL,
		"--public-address", addresses[0], "--internal-address", addresses[1], "--ops-address", addresses[2],
		"--public-rate", unlimited, "--public-burst", unlimited,
		"--drain-delay", "0s")
	if err != nil {
		return err
	}
	s.onStop(func() error { replica.Stop(); return nil })
	of.replica, of.address, of.caller = replica, addresses[0], newCaller(addresses[0])
	s.onStop(func() error { of.caller.close(); return nil })
	last := s.merchants[len(s.merchants)-1]
	err = process.Eventually(ctx, func() error {
		got, err := of.caller.ask(ctx, http.MethodGet, "/api/v1/merchant/me", last.key, "")
		if err == nil && got.status != http.StatusOK {
			err = fmt.Errorf("it answers %d", got.status)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("start a replica: %w; its log is %s", err, s.log.Name())
	}
	return nil
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
