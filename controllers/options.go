package controllers

import (
	"errors"
	"log/slog"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/internal/ops"
)

// Options say how the operator runs. Start from DefaultOptions.
type Options struct {
	// Kubeconfig is a file; empty: $KUBECONFIG, then the pod's own service account.
	Kubeconfig string
	// CredentialsNamespace is where published objects live. Tenants must have no access to it.
	CredentialsNamespace string
	// WatchNamespaces are the namespaces whose Merchants and ApiKeys are managed; empty: all.
	WatchNamespaces []string
	// Ops is the port of health and metrics.
	Ops ops.Options

	// LeaderElect lets only one of several operators work at a time.
	LeaderElect bool
	// LeaderElectionNamespace holds the lease; empty: the pod's own namespace.
	LeaderElectionNamespace string

	// ShutdownTimeout is how long running passes may take to end.
	ShutdownTimeout time.Duration
	// Clock says when a schedule or a retention comes due.
	Clock clock.PassiveClock
	// Log is where the operator and the libraries below it log.
	Log *slog.Logger

	// newClient replaces the client that writes, for tests that let a write fail.
	newClient client.NewClientFunc
}

// DefaultOptions are those of a Deployment.
func DefaultOptions() Options {
	return Options{
		CredentialsNamespace: "merchant-operator-credentials",
		Ops:                  ops.DefaultOptions(),
		LeaderElect:          true,
		ShutdownTimeout:      20 * time.Second,
		Clock:                clock.RealClock{},
		Log:                  slog.Default(),
		newClient:            client.New,
	}
}

func (o Options) validate() error {
	switch {
	case o.CredentialsNamespace == "":
		return errors.New("set --credentials-namespace")
	case o.Clock == nil || o.Log == nil || o.newClient == nil:
		return errors.New("options: incomplete; start from DefaultOptions")
	}
	return o.Ops.Validate()
}
