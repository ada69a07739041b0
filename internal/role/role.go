// Package role has the life of a process of the data plane: what every role opens, the order in which it starts, becomes ready and drains,
// and how it ends. The operator's life is that of its controller manager.
package role

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/internal/gitops"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/ops"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/tracing"
)

// Role is a process of one role, with its connections.
type Role struct {
	Registry *prometheus.Registry
	Tracer   *tracing.Tracer // nil: none
	Redis    *redis.Client
	Cluster  *rest.Config
	Kube     kubernetes.Interface

	options     Options
	phase       *ops.Phase
	draining    chan struct{}
	stopTracing func()
}

// Open connects the role of this name. connection has the options of Redis that roles do not share. Call Close at the end.
func Open(ctx context.Context, name string, options Options, connection redis.Options) (*Role, error) {
	r := &Role{
		Registry: ops.NewRegistry(), options: options, phase: ops.NewPhase(), draining: make(chan struct{}), stopTracing: func() {},
	}
	if err := r.open(ctx, name, connection); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Role) open(ctx context.Context, name string, connection redis.Options) error {
	tracer, stopTracing, err := tracing.Start(ctx, name, r.options.Spans, r.options.Log)
	if err != nil {
		return fmt.Errorf("start tracing: %w", err)
	}
	r.Tracer, r.stopTracing = tracer, stopTracing
	connection.URL, connection.Timeout = r.options.RedisURL, r.options.RedisTimeout
	connection.Log, connection.Registerer, connection.Tracer = r.options.Log, r.Registry, r.Tracer
	if r.Redis, err = redis.Open(connection); err != nil {
		return err
	}
	if r.Cluster, err = kube.Load(r.options.Kubeconfig, name, Keep()); err != nil {
		return err
	}
	r.Kube, err = kube.Client(r.Cluster)
	return err
}

// Keep is what the roles of the data plane read of the metadata that tenants write: whether Git manages
// an object.
func Keep() kube.Keep { return kube.Keep{Keys: gitops.Keys(), Managers: gitops.Managers()} }

// Close ends the connections.
func (r *Role) Close() {
	if r.Redis != nil {
		_ = r.Redis.Close()
	}
	r.stopTracing()
}

// Draining is closed when the role drains.
func (r *Role) Draining() <-chan struct{} { return r.draining }

// IsDraining reports whether the role drains.
func (r *Role) IsDraining() bool { return r.phase.Is(ops.Draining) }
