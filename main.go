// Command merchant-operator is one binary with a role for each Deployment: the operator that
// publishes merchants and keys, and the apiserver that takes their charges.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
)

// version is stamped by the linker (make build).
var version = "devel"

func main() {
	// The first signal begins an orderly stop; a second one ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "merchant-operator:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "merchant-operator",
		Short: "Onboard merchants with kubectl apply, charge through an HTTP API",
		Long: "merchant-operator manages merchants and their API keys as Kubernetes custom resources and\n" +
			"serves the payment session API that those keys open. Each role is one Deployment.",
		Version:           version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	var level slog.Level
	root.PersistentFlags().TextVar(&level, "log-level", slog.LevelInfo, "lowest level that is logged: DEBUG, INFO, WARN or ERROR")
	logger := func() *slog.Logger {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	}
	root.AddCommand(operatorCommand(logger), apiserverCommand(logger), versionCommand())
	return root
}

func operatorCommand(logger func() *slog.Logger) *cobra.Command {
	options := controllers.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Reconcile Merchants and ApiKeys into the credentials namespace",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Log = logger()
			return controllers.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.Kubeconfig, "kubeconfig", options.Kubeconfig, "kubeconfig file; empty: $KUBECONFIG, then the pod's own service account")
	flags.StringVar(&options.CredentialsNamespace, "credentials-namespace", options.CredentialsNamespace, "namespace of the published objects; tenants must have no access to it")
	flags.StringSliceVar(&options.WatchNamespaces, "watch-namespaces", nil, "namespaces to manage, comma-separated; empty: all")
	flags.StringVar(&options.OpsAddress, "ops-address", options.OpsAddress, "listen address of /healthz, /readyz and /metrics")
	flags.BoolVar(&options.LeaderElect, "leader-elect", options.LeaderElect, "let only one of several operators work at a time")
	flags.StringVar(&options.LeaderElectionNamespace, "leader-election-namespace", "", "namespace of the lease; empty: the pod's own")
	return cmd
}

func apiserverCommand(logger func() *slog.Logger) *cobra.Command {
	options := apiserver.DefaultOptions()
	var proxies []string
	cmd := &cobra.Command{
		Use:   "apiserver",
		Short: "Serve the payment session API",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, proxy := range proxies {
				prefix, err := netip.ParsePrefix(proxy)
				if err != nil {
					return fmt.Errorf("--trusted-proxies: %q is not a CIDR block such as 10.0.0.0/8", proxy)
				}
				options.TrustedProxies = append(options.TrustedProxies, prefix)
			}
			if options.RedisURL == "" {
				options.RedisURL = os.Getenv("REDIS_URL")
			}
			options.Log = logger()
			return apiserver.Run(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&options.Kubeconfig, "kubeconfig", options.Kubeconfig, "kubeconfig file; empty: $KUBECONFIG, then the pod's own service account")
	flags.StringVar(&options.CredentialsNamespace, "credentials-namespace", options.CredentialsNamespace, "namespace of the published objects")
	flags.StringVar(&options.RedisURL, "redis-url", "", "Redis as a URL; empty: $REDIS_URL, which keeps a password out of the process list")
	flags.StringVar(&options.PublicAddress, "public-address", options.PublicAddress, "listen address of the API, the one an ingress routes to")
	flags.StringVar(&options.InternalAddress, "internal-address", options.InternalAddress, "listen address for rails inside the cluster")
	flags.StringVar(&options.OpsAddress, "ops-address", options.OpsAddress, "listen address of /healthz, /readyz and /metrics")
	flags.StringVar(&options.QRScheme, "qr-scheme", options.QRScheme, "scheme of the QR payload <scheme>://qr/<session id>")
	flags.StringSliceVar(&proxies, "trusted-proxies", nil, "CIDR blocks whose X-Forwarded-For is believed, comma-separated; empty: nobody's")
	flags.DurationVar(&options.SessionRetention, "session-retention", options.SessionRetention, "how long a session can be read after its expiry")
	flags.Int32Var(&options.PublicRateLimit.RequestsPerSecond, "public-rate", options.PublicRateLimit.RequestsPerSecond, "public status reads per second and client address")
	flags.Int32Var(&options.PublicRateLimit.Burst, "public-burst", options.PublicRateLimit.Burst, "public status reads that one client address may make at once")
	flags.DurationVar(&options.DrainDelay, "drain-delay", options.DrainDelay, "time between turning unready and closing the listeners, for load balancers to notice")
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), version) },
	}
}
