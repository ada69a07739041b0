//go:build faults

package faults

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// cluster is a Kubernetes API with the operator, and the program that all roles are processes of.
type cluster struct {
	*kubetest.Cluster

	program  string
	logs     *logtest.Buffer // of all processes
	operator *process
	asked    *counter       // what the operator asks the Kubernetes API
	metrics  logtest.Buffer // of all processes, as they showed them before they ended
	spans    *spans         // of all processes

	mu      sync.Mutex
	secrets []string
	// notIssued are the places where a secret was expected, and there was none.
	notIssued []string

	closers []func() error // in the order of starting
}

func startCluster() (c *cluster, err error) {
	c = &cluster{logs: &logtest.Buffer{}, asked: &counter{}}
	shared = c // processes log to it
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	cluster, stopCluster, err := kubetest.NewCluster()
	c.Cluster = cluster
	c.closers = append(c.closers, stopCluster)
	if err != nil {
		return c, err
	}
	c.program = filepath.Join(c.Dir, "merchant-operator")
	if err := repository.Build(c.program, "."); err != nil {
		return c, err
	}
	c.spans = receiveSpans()
	c.closers = append(c.closers, func() error { c.spans.Close(); return nil })
	if err := c.InstallRBAC(); err != nil {
		return c, err
	}
	if _, err := c.Kubectl("", "apply", "-k", repository.Path("config", "flowschema")); err != nil {
		return c, err
	}
	return c, c.startOperator()
}

func (c *cluster) startOperator() error {
	user, err := c.Account(fixture.OperatorAccount)
	if err != nil {
		return err
	}
	config := user.Config()
	config.Wrap(c.asked.wrap)
	toKube, err := kubeproxy.Start(config)
	if err != nil {
		return err
	}
	c.closers = append(c.closers, func() error { toKube.Close(); return nil })
	kubeconfig, err := toKube.Kubeconfig(c.Dir, "operator-proxied")
	if err != nil {
		return err
	}
	var ops string
	if err := fixture.Choose(&ops); err != nil {
		return err
	}
	memory, err := containerMemory("operator")
	if err != nil {
		return err
	}
	c.operator = &process{name: "operator", ops: ops, toKube: toKube, env: memoryEnvironment(memory), args: []string{
		"operator", "--kubeconfig", kubeconfig, "--ops-address", ops, "--leader-elect=false",
		"--max-requests-per-second=0", "--max-burst=0",
	}}
	c.closers = append(c.closers, c.operator.stop)
	return c.operator.start()
}

// logger is for roles that run in this process.
func (c *cluster) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(c.logs, nil)) }

// stop ends what was started, the last first.
func (c *cluster) stop() error {
	var failures []error
	for _, closer := range slices.Backward(c.closers) {
		failures = append(failures, closer())
	}
	c.closers = nil
	return errors.Join(failures...)
}

func (c *cluster) get(ctx context.Context, namespace, name string, into client.Object) error {
	return c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
}

// counter counts requests.
type counter struct{ n atomic.Int64 }

type counted struct {
	next http.RoundTripper
	by   *counter
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper { return counted{next, c} }

// RoundTrip counts and passes on.
func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	c.by.n.Add(1)
	return c.next.RoundTrip(request)
}
