package main

import (
	"log/slog"
	"math"
	"runtime"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
)

func operatorCommand(logger func() *slog.Logger) *cobra.Command {
	options := controllers.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Reconcile Merchants and ApiKeys into the credentials namespace",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Log = logger()
			fitMemory(options.Log)
			return controllers.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addKubeconfig(flags, &options.Kubeconfig)
	flags.StringVar(&options.CredentialsNamespace, "credentials-namespace", options.CredentialsNamespace, "namespace of the published objects; tenants must have no access to it")
	flags.StringSliceVar(&options.WatchNamespaces, "watch-namespaces", nil, "namespaces to manage, comma-separated; empty: all")
	addOps(flags, &options.Ops)
	flags.BoolVar(&options.LeaderElect, "leader-elect", options.LeaderElect, "let only one of several operators work at a time")
	flags.StringVar(&options.LeaderElectionNamespace, "leader-election-namespace", "", "namespace of the lease; empty: the pod's own")
	return cmd
}

func apiserverCommand(logger func() *slog.Logger) *cobra.Command {
	options := apiserver.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "apiserver",
		Short: "Serve the payment session API",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.RedisURL = orRedisURL(options.RedisURL)
			options.Log = logger()
			fitMemory(options.Log)
			defer runtime.KeepAlive(ballast())
			return apiserver.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addKubeconfig(flags, &options.Kubeconfig)
	flags.StringVar(&options.CredentialsNamespace, "credentials-namespace", options.CredentialsNamespace, "namespace of the published objects")
	addRedisURL(flags, &options.RedisURL)
	flags.StringVar(&options.PublicAddress, "public-address", options.PublicAddress, "listen address of the API, the one an ingress routes to")
	flags.StringVar(&options.InternalAddress, "internal-address", options.InternalAddress, "listen address for rails inside the cluster")
	addOps(flags, &options.Ops)
	flags.IntVar(&options.MaxConnections, "max-connections", options.MaxConnections, "connections of clients at once, of some 23 KiB each; past it those are closed that have waited longest for a request")
	flags.StringVar(&options.QRScheme, "qr-scheme", options.QRScheme, "scheme of the QR payload <scheme>://qr/<session id>")
	flags.Var((*blocks)(&options.TrustedProxies), "trusted-proxies", "CIDR blocks whose X-Forwarded-For is believed, comma-separated; empty: nobody's")
	flags.DurationVar(&options.SessionRetention, "session-retention", options.SessionRetention, "how long a session can be read after its expiry; one that a rail has reported of, for at least 30 days")
	flags.Int32Var(&options.PublicRateLimit.RequestsPerSecond, "public-rate", options.PublicRateLimit.RequestsPerSecond, "public status reads per second and client address")
	flags.Int32Var(&options.PublicRateLimit.Burst, "public-burst", options.PublicRateLimit.Burst, "public status reads that one client address may make at once")
	flags.StringVar(&options.RailAudience, "rail-audience", "", "audience that the tokens of rails must be issued for; empty: the Kubernetes API itself")
	flags.IntVar(&options.SettlementReplicas, "settlement-replicas", options.SettlementReplicas, "replicas of Redis that must have a settlement before it is answered, else it is 503 and the rail reports again; 0: the master alone")
	flags.DurationVar(&options.SettlementWait, "settlement-wait", options.SettlementWait, "how long a settlement waits for them")
	flags.BoolVar(&options.AccessLog, "access-log", false, "log each request at INFO, with an id that its answer has in X-Request-Id")
	flags.DurationVar(&options.DrainDelay, "drain-delay", options.DrainDelay, "time between turning unready and closing the listeners, for load balancers to notice")
	return cmd
}

func dispatcherCommand(logger func() *slog.Logger) *cobra.Command {
	options := dispatcher.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "dispatcher",
		Short: "Expire sessions in time and deliver webhooks",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.RedisURL = orRedisURL(options.RedisURL)
			options.Log = logger()
			fitMemory(options.Log)
			defer runtime.KeepAlive(ballast())
			return dispatcher.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	addKubeconfig(flags, &options.Kubeconfig)
	flags.StringVar(&options.CredentialsNamespace, "credentials-namespace", options.CredentialsNamespace, "namespace of the published objects")
	addRedisURL(flags, &options.RedisURL)
	addOps(flags, &options.Ops)
	flags.BoolVar(&options.AllowHTTP, "webhook-allow-http", false, "deliver over plain HTTP too; events and signatures can then be read on the way")
	flags.Var((*blocks)(&options.AllowCIDRs), "webhook-allow-cidrs", "CIDR blocks that webhooks may go to besides public addresses, comma-separated; empty: none")
	flags.IntVar(&options.Concurrency, "webhook-concurrency", options.Concurrency, "attempts under way at once to one merchant's endpoint")
	flags.IntVar(&options.MaxInFlight, "webhook-max-in-flight", options.MaxInFlight, "attempts under way at once to all endpoints")
	flags.DurationVar(&options.Lease, "lease", options.Lease, "how long the events of a dispatcher that crashed are delayed; more than an attempt takes, which is 15s")
	flags.DurationVar(&options.FailingLimit, "webhook-failing-limit", options.FailingLimit, "how long an endpoint may do nothing but fail before it is disabled")
	return cmd
}

// fitMemory has the garbage collector work harder when the container's memory limit is near, rather than let the kernel
// kill the process. GOMEMLIMIT in the environment takes its place.
func fitMemory(log *slog.Logger) {
	const share = 0.9 // the rest is for what the collector does not count
	if limit, err := memlimit.Set(memlimit.WithRatio(share)); err == nil && limit < math.MaxInt64 {
		log.Info("memory is limited", "bytes", limit)
	}
}

// ballast is for roles that keep little and throw much away. The collector sets to work when there is as much garbage as of
// what is kept, which would be fifty times a second; what is kept and never touched counts for it, and takes no memory. So there may
// be so much garbage more, and no more than that under any load, as there would be with a higher GOGC. The caller
// keeps it alive for as long as the role runs.
func ballast() []byte { return make([]byte, 32<<20) }
