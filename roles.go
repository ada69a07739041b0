package main

import (
	"context"
	"io"
	stdlog "log" //nolint:depguard // to discard what libraries write with it
	"log/slog"
	"math"
	"os"
	"runtime"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/console"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
)

func operatorCommand(logger func() *slog.Logger) *cobra.Command {
	options := controllers.DefaultOptions()
	cmd := roleCommand("operator", "Publish Merchants and ApiKeys to the data plane, deliver and rotate keys", logger, func(ctx context.Context, log *slog.Logger) error {
		options.Log = log
		return controllers.Run(ctx, options)
	})
	flags := cmd.Flags()
	addKubeconfig(flags, &options.Kubeconfig)
	addCredentialsNamespace(flags, &options.CredentialsNamespace)
	flags.StringSliceVar(&options.WatchNamespaces, "watch-namespaces", nil, "namespaces with Merchants and ApiKeys to manage, comma-separated; empty: all")
	addOps(flags, &options.Ops)
	flags.Int32Var(&options.MaxRateLimit.RequestsPerSecond, "max-requests-per-second", options.MaxRateLimit.RequestsPerSecond, "most requests per second that a Merchant gets; a higher spec.rateLimit is reduced to it; 0: no maximum")
	flags.Int32Var(&options.MaxRateLimit.Burst, "max-burst", options.MaxRateLimit.Burst, "most requests at once that a Merchant gets; a higher spec.rateLimit is reduced to it; 0: no maximum")
	flags.BoolVar(&options.LeaderElect, "leader-elect", options.LeaderElect, "elect a leader, so that only one operator of the credentials namespace is active")
	flags.StringVar(&options.LeaderIdentity, "leader-identity", "", "name of this operator in the lease, the same after a restart and unique, such as the UID of its pod; empty: a new one at each start")
	return cmd
}

func apiserverCommand(logger func() *slog.Logger) *cobra.Command {
	options := apiserver.DefaultOptions()
	cmd := roleCommand("apiserver", "Serve the payment session API", logger, func(ctx context.Context, log *slog.Logger) error {
		options.RedisURL = orRedisURL(options.RedisURL)
		options.Log = log
		defer runtime.KeepAlive(ballast())
		return apiserver.Run(ctx, options)
	})
	flags := cmd.Flags()
	addKubeconfig(flags, &options.Kubeconfig)
	addCredentialsNamespace(flags, &options.CredentialsNamespace)
	addRedisURL(flags, &options.RedisURL)
	flags.StringVar(&options.PublicAddress, "public-address", options.PublicAddress, "listen address of the public API, for merchants and payers")
	flags.StringVar(&options.InternalAddress, "internal-address", options.InternalAddress, "listen address of the internal API, for payment rails and the console")
	flags.StringVar(&options.InternalCertificateDir, "internal-cert-dir", "", "directory with tls.crt and tls.key for the internal port; empty: plain HTTP, and no API keys are issued there unless the address is a loopback one")
	addOps(flags, &options.Ops)
	flags.IntVar(&options.MaxConnections, "max-connections", options.MaxConnections, "maximum concurrent connections, about 23 KiB of memory each; the longest idle is closed first")
	flags.IntVar(&options.Streams.Max, "max-streams", options.Streams.Max, "maximum concurrent streams and long polls of session statuses, and waits for events, to which one place in 16 is reserved; not counted in --max-connections")
	flags.IntVar(&options.Streams.MaxPerAddress, "max-streams-per-address", options.Streams.MaxPerAddress, "maximum concurrent streams and long polls of one client address")
	flags.StringVar(&options.QRScheme, "qr-scheme", options.QRScheme, "scheme of the QR payload <scheme>://qr/<session id>")
	flags.StringVar(&options.QRContent, "qr-content", options.QRContent, "content of the QR code on payer pages: Payload, or Link to the page itself, which cameras of phones open")
	flags.StringVar(&options.PaymentAppURL, "payment-app-url", "", "https URL that the button of payer pages opens, with {sessionId} for the session's id, such as https://pay.example.com/{sessionId}; default: the QR payload")
	flags.StringVar(&options.PublicURL, "public-url", "", "https URL under which payers reach the public API, such as https://pay.example.com; begins the Link of each created session, required with --qr-content=Link")
	addTrustedProxies(flags, &options.TrustedProxies)
	addSessionRetention(flags, &options.SessionRetention)
	flags.Int64Var(&options.MaxSessionsPerDay, "max-sessions-per-day", options.MaxSessionsPerDay, "sessions that one merchant creates at each replica at once, and a day after that, but one a second in any case; all of a namespace ten times as many; about 2.5 KB of Redis each, above it a create gets 429; 0: any number")
	addHistory(flags, &options.History.Age, &options.History.Entries)
	flags.BoolVar(&options.Receipts, "receipts", false, "store each customerEmail until its receipt was sent; set it if dispatchers have --smtp-url, and only then")
	flags.Int32Var(&options.PublicRateLimit.RequestsPerSecond, "public-rate", options.PublicRateLimit.RequestsPerSecond, "public status reads per second from one client address, at each replica")
	flags.Int32Var(&options.PublicRateLimit.Burst, "public-burst", options.PublicRateLimit.Burst, "public status reads at once from one client address, at each replica")
	flags.StringVar(&options.InternalAudience, "internal-audience", "", "audience required in tokens on the internal port; empty: the Kubernetes API")
	addSettlementReplicas(flags, &options.SettlementReplicas)
	flags.DurationVar(&options.SettlementWait, "settlement-wait", options.SettlementWait, "time to wait for --settlement-replicas")
	flags.BoolVar(&options.AccessLog, "access-log", false, "log each request at INFO, with the id that the client gets in X-Request-Id")
	flags.BoolVar(&options.LogRefusedKeys, "log-refused-keys", false, "log the reason, key id and client address of each 401, at most once a second for each key id and address")
	addDrainDelay(flags, &options.DrainDelay)
	return cmd
}

func dispatcherCommand(logger func() *slog.Logger) *cobra.Command {
	options := dispatcher.DefaultOptions()
	cmd := roleCommand("dispatcher", "Deliver webhooks, expire sessions and send receipts", logger, func(ctx context.Context, log *slog.Logger) error {
		options.RedisURL = orRedisURL(options.RedisURL)
		options.MailServer.Username, options.MailServer.Password = os.Getenv("SMTP_USERNAME"), os.Getenv("SMTP_PASSWORD")
		options.Log = log
		defer runtime.KeepAlive(ballast())
		return dispatcher.Run(ctx, options)
	})
	flags := cmd.Flags()
	addKubeconfig(flags, &options.Kubeconfig)
	addCredentialsNamespace(flags, &options.CredentialsNamespace)
	addRedisURL(flags, &options.RedisURL)
	addOps(flags, &options.Ops)
	flags.BoolVar(&options.AllowHTTP, "webhook-allow-http", false, "allow webhooks over plain HTTP; anyone on the network path can read the events")
	flags.Var(newBlocks(&options.Egress.Allow), "webhook-allow-cidrs", "CIDR blocks allowed for webhooks in addition to public addresses, comma-separated; empty: none")
	flags.Var(newBlocks(&options.Egress.Deny), "webhook-deny-cidrs", "CIDR blocks refused for webhooks although they are public or allowed, comma-separated; the default has ranges that GKE and IBM Cloud use inside; empty: none")
	flags.StringSliceVar(&options.Egress.DenyDomains, "webhook-deny-domains", options.Egress.DenyDomains, "domains refused for webhooks with all names below them, comma-separated: the cluster's; empty: none")
	flags.IntVar(&options.Concurrency, "webhook-concurrency", options.Concurrency, "maximum concurrent attempts per merchant")
	flags.IntVar(&options.MaxInFlight, "webhook-max-in-flight", options.MaxInFlight, "maximum concurrent attempts of this dispatcher")
	flags.DurationVar(&options.Lease, "lease", options.Lease, "longest time for which a dispatcher keeps an event; more than 15s, the timeout of an attempt")
	flags.DurationVar(&options.FailingLimit, "webhook-failing-limit", options.FailingLimit, "time after which an endpoint is disabled if every attempt fails")
	flags.Int64Var(&options.MaxPending, "webhook-max-pending", options.MaxPending, "maximum events of a merchant that wait for delivery; beyond it those that are due first become dead letters")
	addHistory(flags, &options.History.Age, &options.History.Entries)
	addMailServer(flags, &options.MailServer)
	return cmd
}

// addMailServer adds flags of receipts. User and password come from $SMTP_USERNAME and $SMTP_PASSWORD, because a flag would show them in the
// process list.
func addMailServer(flags *pflag.FlagSet, options *dispatcher.MailServer) {
	flags.StringVar(&options.URL, "smtp-url", "", "mail server for receipts: smtps://host:port, or smtp://host:port with STARTTLS; user and password are read from $SMTP_USERNAME and $SMTP_PASSWORD; empty: no receipts")
	flags.StringVar(&options.From, "smtp-from", "", `sender of receipts, such as "Example Pay <receipts@pay.example>"; required with --smtp-url`)
	flags.StringVar(&options.Helo, "smtp-helo", "", "name that the mail server is greeted with (EHLO), such as pay.example, or an IP address in brackets; empty: the domain of --smtp-from")
	flags.StringVar(&options.CAFile, "smtp-ca-file", "", "file with the certificate authority of the mail server, read for each mail; empty: those of the system")
}

// roleCommand returns the command that runs a role, without flags.
func roleCommand(name, short string, logger func() *slog.Logger, run func(context.Context, *slog.Logger) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Go's HTTP client quotes there what a merchant's endpoint sends on an idle connection, as often as it does. Our servers log
			// the errors of connections themselves.
			stdlog.SetOutput(io.Discard)
			log := logger()
			fitMemory(log)
			return run(cmd.Context(), log)
		},
	}
	cmd.Flags().SortFlags = false
	return cmd
}

func consoleCommand(logger func() *slog.Logger) *cobra.Command {
	options := console.DefaultOptions()
	const short = "Serve the merchant console, where people of a merchant make and rotate keys"
	cmd := roleCommand("console", short, logger, func(ctx context.Context, log *slog.Logger) error {
		options.RedisURL = orRedisURL(options.RedisURL)
		options.Provider.ClientSecret = os.Getenv("OIDC_CLIENT_SECRET")
		options.Log = log
		return console.Run(ctx, options)
	})
	flags := cmd.Flags()
	addKubeconfig(flags, &options.Kubeconfig)
	addRedisURL(flags, &options.RedisURL)
	flags.StringSliceVar(&options.WatchNamespaces, "watch-namespaces", nil, "namespaces with Merchants to show, comma-separated; empty: all")
	flags.StringVar(&options.Address, "console-address", options.Address, "listen address of the console, for browsers")
	flags.StringVar(&options.CertificateDir, "console-cert-dir", "", "directory with tls.crt and tls.key for the console; empty: plain HTTP, for a proxy that terminates TLS")
	addOps(flags, &options.Ops)
	flags.StringVar(&options.ExternalURL, "external-url", "", "origin of the console in browsers, such as https://console.example")
	flags.StringVar(&options.APIURL, "api-url", "", "origin of the payment API, for the examples that people copy")
	flags.StringVar(&options.InternalURL, "internal-url", "", "origin of the API's internal port, where keys are rotated; https, or http on a loopback address")
	flags.StringVar(&options.InternalCAFile, "internal-ca-file", "", "file with the certificate authority of the internal port; empty: those of the system")
	flags.StringVar(&options.InternalTokenFile, "internal-token-file", "", "file with the token for the internal port; empty: the token of the account")
	addTrustedProxies(flags, &options.TrustedProxies)
	addSessionRetention(flags, &options.SessionRetention)
	addHistory(flags, &options.History.Age, &options.History.Entries)
	addSettlementReplicas(flags, &options.SettlementReplicas)
	flags.Int64Var(&options.RequestLimit.RequestsPerSecond, "address-rate", options.RequestLimit.RequestsPerSecond, "requests per second from one client address")
	flags.Int64Var(&options.RequestLimit.Burst, "address-burst", options.RequestLimit.Burst, "requests at once from one client address")
	addProvider(flags, &options.Provider)
	flags.DurationVar(&options.LoginIdle, "login-idle", options.LoginIdle, "time after which an unused login ends")
	flags.DurationVar(&options.LoginLifetime, "login-lifetime", options.LoginLifetime, "time after which every login ends")
	addDrainDelay(flags, &options.DrainDelay)
	return cmd
}

// addProvider adds flags that mean the same as those of a kube-apiserver. The client secret comes from $OIDC_CLIENT_SECRET, because
// a flag would show it in the process list.
func addProvider(flags *pflag.FlagSet, options *console.ProviderOptions) {
	flags.StringVar(&options.IssuerURL, "oidc-issuer-url", "", "URL of the OpenID provider; the client secret is read from $OIDC_CLIENT_SECRET")
	flags.StringVar(&options.ClientID, "oidc-client-id", "", "id of the console at the provider")
	flags.StringVar(&options.CAFile, "oidc-ca-file", "", "file with the certificate authority of the provider; empty: those of the system")
	flags.StringSliceVar(&options.Scopes, "oidc-scopes", options.Scopes, "scopes to request in addition to openid, comma-separated")
	flags.StringVar(&options.UsernameClaim, "oidc-username-claim", options.UsernameClaim, "claim of the ID token with the user name in RoleBindings")
	flags.StringVar(&options.UsernamePrefix, "oidc-username-prefix", "", `prefix of user names; empty: "<issuer>#", but none for the claim email; "-": none`)
	flags.StringVar(&options.GroupsClaim, "oidc-groups-claim", "", "claim of the ID token with the groups; empty: no groups")
	flags.StringVar(&options.GroupsPrefix, "oidc-groups-prefix", "", "prefix of groups in RoleBindings")
}

// fitMemory makes Go collect garbage more often near the container's memory limit, so that the kernel does not
// kill the process. GOMEMLIMIT takes precedence.
func fitMemory(log *slog.Logger) {
	const share = 0.9 // the rest is memory that the collector does not count
	if limit, err := memlimit.Set(memlimit.WithRatio(share)); err == nil && limit < math.MaxInt64 {
		log.Info("set the memory limit", "bytes", limit)
	}
}

// ballast makes garbage collections rare in roles that keep little memory and allocate much. It counts as live, so 32 MB more
// garbage may collect, under any load; it is never written, so it takes no memory. A higher GOGC would have no such bound.
// The caller keeps it alive.
func ballast() []byte { return make([]byte, 32<<20) }
