package controllers

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/ops"
)

// Options configure the operator. Start from DefaultOptions.
type Options struct {
	// Kubeconfig is a file; empty: $KUBECONFIG, then the service account of the pod.
	Kubeconfig string
	// CredentialsNamespace is the namespace of the published objects. Give tenants no access to it.
	CredentialsNamespace string
	// WatchNamespaces are the namespaces whose Merchants and ApiKeys are managed; empty: all.
	WatchNamespaces []string
	// Ops is the port of health and metrics.
	Ops ops.Options

	// LeaderElect makes only one of the operators of a credentials namespace active.
	LeaderElect bool
	// LeaderIdentity is the name of this operator in the lease, which nobody else may have at the same time. A process with the same name as the
	// one that led leads at once, as one that is started again in its pod. Empty: a new name.
	LeaderIdentity string

	// MaxRateLimit is the most that a Merchant gets, whatever its spec asks for. Default 1,000 per second, 10,000 at once.
	// 0: no maximum but that of the schema.
	MaxRateLimit v1alpha1.RateLimit
	// LastUseInterval is the time between two looks at the last uses of all keys. Default 1 min.
	LastUseInterval time.Duration
	// OldKeys says when an old key counts as used.
	OldKeys apikeys.OldKeyTimes
	// ShutdownTimeout is how long running reconciliations may take to end.
	ShutdownTimeout time.Duration
	// Clock is used for schedules and retention.
	Clock clock.PassiveClock
	// Log is the log of the operator and its libraries.
	Log *slog.Logger

	// newClient creates the client that writes; tests make it fail.
	newClient client.NewClientFunc
	// maxClockDifference is how far the clock may be from that of the API server; tests move it.
	maxClockDifference time.Duration
}

// DefaultOptions are the options for a Deployment.
func DefaultOptions() Options {
	return Options{
		CredentialsNamespace: "merchant-operator-credentials",
		Ops:                  ops.DefaultOptions(),
		LeaderElect:          true,
		ShutdownTimeout:      20 * time.Second,
		Clock:                clock.RealClock{},
		Log:                  slog.Default(),
		LastUseInterval:      time.Minute,
		OldKeys:              apikeys.DefaultOldKeyTimes(),
		MaxRateLimit:         v1alpha1.RateLimit{RequestsPerSecond: 1_000, Burst: 10_000},
		newClient:            client.New,
		maxClockDifference:   time.Minute,
	}
}

// validate names the flag of an invalid option.
func (o Options) validate() error {
	if o.Clock == nil || o.Log == nil || o.newClient == nil {
		return errors.New("options: incomplete; start from DefaultOptions")
	}
	if strings.Contains(o.LeaderIdentity, "$(") { // as the kubelet leaves a variable that is not set, in all pods
		return errors.New("--leader-identity must not have a variable that is not set")
	}
	if o.MaxRateLimit.RequestsPerSecond < 0 || o.MaxRateLimit.Burst < 0 {
		return errors.New("--max-requests-per-second and --max-burst must not be negative")
	}
	return errors.Join(
		kube.CheckNamespace("--credentials-namespace", o.CredentialsNamespace), kube.CheckNamespaces("--watch-namespaces", o.WatchNamespaces),
		o.Ops.Validate(),
	)
}
