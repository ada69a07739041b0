// Package controllers is the role operator: it publishes Merchants and ApiKeys into the credentials namespace, for
// the data plane. This package has the options, caches, ops port and leader election. Packages merchants and apikeys
// have the reconcilers, and reconciler what they share.
package controllers

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/apikeys"
	"github.com/merchant-operator/merchant-operator/controllers/budget"
	"github.com/merchant-operator/merchant-operator/controllers/lastuse"
	"github.com/merchant-operator/merchant-operator/controllers/merchants"
	"github.com/merchant-operator/merchant-operator/controllers/orphans"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// leaseName is the name of the leader election lease. It is in the credentials namespace, because that is what two operators must not
// write at once: operators of one credentials namespace elect one leader, whatever releases they belong to.
const leaseName = "merchant-operator"

// passTimeout is the timeout of one reconciliation.
const passTimeout = time.Minute

// cacheSyncTimeout is for what a controller does when the caches are full: it passes every object to its handlers. No time limits the lists
// before that: an operator that gave up and restarted would only begin them anew. It is not ready meanwhile.
const cacheSyncTimeout = 10 * time.Minute

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update,namespace=merchant-operator-credentials

// Run runs the operator until ctx ends. If it returns an error, the process must end, because the lease may be lost.
func Run(ctx context.Context, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	cluster, err := kube.Load(o.Kubeconfig, "operator", kube.Keep{Keys: keptKeys(), Trusted: o.CredentialsNamespace})
	if err != nil {
		return err
	}
	logger := logr.FromSlogHandler(o.Log.Handler())
	ctrl.SetLogger(logger)
	server := kube.NewServerClock(o.Clock.Now)
	server.Observe(cluster)
	limitTenantWrites(cluster, o.CredentialsNamespace)
	mgr, err := newManager(ctx, cluster, server, o, logger)
	if err != nil {
		return fmt.Errorf("start the operator: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the operator: %w", err)
	}
	return nil
}

// newManager sets up everything that Run starts.
func newManager(ctx context.Context, cluster *rest.Config, server *kube.ServerClock, o Options, logger logr.Logger) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	caching, err := cacheOptions(o)
	if err != nil {
		return nil, err
	}
	serving, err := opsOptions(o)
	if err != nil {
		return nil, err
	}
	lease, err := newLease(cluster, o)
	if err != nil {
		return nil, fmt.Errorf("set up the leader election: %w", err)
	}
	severalPerProcess := true // names need to be unique for logs only, and tests restart the operator
	mgr, err := manager.New(cluster, manager.Options{
		Scheme: scheme,
		Logger: logger,
		// client-go finds its logger in the context. What runs is stopped by the manager, in order.
		BaseContext:                         func() context.Context { return logr.NewContext(context.WithoutCancel(ctx), logger) },
		Cache:                               caching,
		MapperProvider:                      func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kube.NewMapper(), nil },
		NewClient:                           o.newClient,
		Metrics:                             serving,
		LeaderElection:                      o.LeaderElect,
		LeaderElectionID:                    leaseName,
		LeaderElectionNamespace:             o.CredentialsNamespace,
		LeaderElectionResourceLockInterface: lease,
		// Safe since the process ends with Run, and lets the next leader begin at once.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &o.ShutdownTimeout,
		Controller: config.Controller{
			SkipNameValidation:    &severalPerProcess,
			CacheSyncTimeout:      cacheSyncTimeout,
			ReconciliationTimeout: passTimeout,
		},
	})
	if err != nil {
		return nil, err
	}
	delivered, err := addDeliveredCache(ctx, mgr, o)
	if err != nil {
		return nil, fmt.Errorf("set up the cache of delivered Secrets: %w", err)
	}
	if err := addOpsHandlers(mgr, delivered); err != nil {
		return nil, fmt.Errorf("set up the ops port: %w", err)
	}
	guard := &clockGuard{
		PassiveClock: o.Clock, server: server, max: o.maxClockDifference,
		apiReader: mgr.GetAPIReader(), namespace: o.CredentialsNamespace, registerer: metrics.Registry,
	}
	return mgr, addControllers(ctx, mgr, delivered, guard, o)
}

// newLease returns the lease of a LeaderIdentity, or of a new name. When the Kubernetes API was away for longer than a leader may go on,
// nobody leads. All others then wait for as long as the lease lasts, because the leader may have renewed it unseen. The manager's own lease
// would write Events about it, into the credentials namespace.
func newLease(cluster *rest.Config, o Options) (resourcelock.Interface, error) {
	connection := rest.AddUserAgent(cluster, "leader-election")
	connection.Timeout = 5 * time.Second // as the manager's: less than a leader may go on without an answer
	client, err := coordinationv1.NewForConfig(connection)
	if err != nil {
		return nil, err
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.CredentialsNamespace, Name: leaseName},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: cmp.Or(o.LeaderIdentity, string(uuid.NewUUID()))},
	}, nil
}

func addControllers(ctx context.Context, mgr manager.Manager, delivered cache.Cache, guard *clockGuard, o Options) error {
	if err := mgr.Add(guard); err != nil {
		return err
	}
	keyMetrics, err := apikeys.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	if err := mgr.Add(newStateMetrics(mgr.GetCache(), metrics.Registry)); err != nil {
		return err
	}
	// Without a controller that watches it yet, the cache would refuse the first read of a ConfigMap.
	if _, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{}); err != nil {
		return fmt.Errorf("watch ConfigMaps: %w", err)
	}
	uses, outdated := lastuse.New(mgr.GetCache(), o.CredentialsNamespace), make(chan event.TypedGenericEvent[*v1alpha1.ApiKey])
	if err := mgr.Add(&lastUses{
		client: mgr.GetClient(), index: uses, namespace: o.CredentialsNamespace, interval: o.LastUseInterval, outdated: outdated,
	}); err != nil {
		return err
	}
	tombstones := budget.New(mgr.GetClient(), mgr.GetAPIReader(), o.CredentialsNamespace)
	base := &reconciler.Base{
		Client:               mgr.GetClient(),
		APIReader:            mgr.GetAPIReader(),
		Secrets:              tenantsecret.Secrets{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Cache: delivered},
		Tombstones:           tombstones,
		Events:               mgr.GetEventRecorder(writes.FieldOwner),
		Audit:                auditlog.New(o.Log),
		Clock:                guard,
		ClockWrong:           guard.Wrong,
		CredentialsNamespace: o.CredentialsNamespace,
	}
	if err := (&merchants.Reconciler{Base: base, MaxRateLimit: o.MaxRateLimit}).SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	keys := &apikeys.Reconciler{Base: base, Metrics: keyMetrics, LastUses: uses, Outdated: outdated, OldKeys: o.OldKeys}
	if err := keys.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	return orphans.Sweeper{
		Client:               mgr.GetClient(),
		Tombstones:           tombstones,
		Audit:                base.Audit,
		APIReader:            mgr.GetAPIReader(),
		Clock:                guard,
		ClockWrong:           guard.Wrong,
		CredentialsNamespace: o.CredentialsNamespace,
		Watched: func(namespace string) bool {
			return len(o.WatchNamespaces) == 0 || slices.Contains(o.WatchNamespaces, namespace)
		},
	}.SetupWithManager(ctx, mgr)
}
