package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/apiserver/kubeconfig"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// stand is everything that runs while it is measured.
type stand struct {
	settings   settings
	directory  string
	log        *os.File
	config     *rest.Config
	kubeconfig string // a file
	kube       kubernetes.Interface
	redis      *redistest.Server

	few, many *population
	strangers []string
	// knowsFew and knowsMany are replicas that know one of the populations; nil before they are started.
	knowsFew, knowsMany *replica

	closers []func() error
}

func newStand(ctx context.Context, settings settings) (s *stand, err error) {
	s = &stand{settings: settings, few: newPopulation("few", 1, settings.few), many: newPopulation("many", settings.merchants, settings.keys)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	const enough = 1 << 12
	if s.strangers, err = strangers(enough); err != nil {
		return s, err
	}
	if s.directory, err = os.MkdirTemp("", "bench-directory"); err != nil {
		return s, err
	}
	s.onStop(func() error { return os.RemoveAll(s.directory) })
	if s.log, err = os.Create(filepath.Join(filepath.Dir(settings.output), "bench-directory.log")); err != nil {
		return s, err
	}
	s.onStop(s.log.Close)
	cluster, stopCluster, err := kubetest.New()
	if err != nil {
		return s, err
	}
	s.onStop(stopCluster)
	s.kubeconfig = filepath.Join(s.directory, "kubeconfig")
	if err := os.WriteFile(s.kubeconfig, cluster.KubeConfig, 0o600); err != nil {
		return s, err
	}
	s.config = rest.CopyConfig(cluster.Config)
	s.config.QPS = -1
	if s.kube, err = kubeconfig.Client(s.config); err != nil {
		return s, err
	}
	redis, stopRedis, err := redistest.New() //nolint:contextcheck // stopped by its own function
	if err != nil {
		return s, err
	}
	s.redis = redis
	s.onStop(func() error { stopRedis(); return nil })
	return s, ctx.Err()
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
