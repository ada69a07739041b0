package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/merchant-operator/merchant-operator/internal/commandline"
	"github.com/merchant-operator/merchant-operator/internal/ops"
)

func addKubeconfig(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "kubeconfig", *path, "kubeconfig file; empty: $KUBECONFIG, then the service account of the pod")
}

func addCredentialsNamespace(flags *pflag.FlagSet, namespace *string) {
	flags.StringVar(namespace, "credentials-namespace", *namespace, "namespace of the published objects; give tenants no access to it")
}

func addTrustedProxies(flags *pflag.FlagSet, proxies *[]netip.Prefix) {
	flags.Var(newBlocks(proxies), "trusted-proxies", "CIDR blocks of proxies to accept X-Forwarded-For from, comma-separated; empty: none")
}

func addDrainDelay(flags *pflag.FlagSet, delay *time.Duration) {
	flags.DurationVar(delay, "drain-delay", *delay, "time from becoming unready to closing the listeners, so that load balancers stop sending requests")
}

func addOps(flags *pflag.FlagSet, options *ops.Options) {
	flags.StringVar(&options.Address, "ops-address", options.Address, "listen address of the ops port: /healthz, /readyz and /metrics")
	flags.BoolVar(&options.Secure, "secure-metrics", false, "use TLS on the ops port, and require Kubernetes authentication and authorization for /metrics")
	flags.StringVar(&options.CertificateDir, "ops-cert-dir", "", "directory with tls.crt and tls.key for the ops port; empty: create a self-signed certificate")
	flags.BoolVar(&options.Profiles, "pprof", false, "serve Go profiles at /debug/pprof/ on the ops port; needs --secure-metrics or a loopback --ops-address")
}

func addSessionRetention(flags *pflag.FlagSet, to *time.Duration) {
	flags.DurationVar(to, "session-retention", *to, "time a session stays readable after its expiry, at least 24h; with a reported payment, 30 days or more")
}

func addSettlementReplicas(flags *pflag.FlagSet, to **int) {
	flags.Var(&optionalInt{to}, "settlement-replicas", "Redis replicas that must acknowledge a settlement or refund; if too few do, the answer is 503; 0: do not wait (default 1 with Sentinels or a Redis Cluster, else 0)")
}

func addHistory(flags *pflag.FlagSet, age *time.Duration, entries *int64) {
	flags.DurationVar(age, "history", *age, "time that events stay in a merchant's feed, GET /api/v1/events; the same for API, dispatcher and console")
	flags.Int64Var(entries, "history-entries", *entries, "most events in the feed of a merchant, about 200 bytes of Redis each; the oldest are dropped")
}

func addRedisURL(flags *pflag.FlagSet, url *string) {
	flags.StringVar(url, "redis-url", "", "URL of Redis; empty: $REDIS_URL, which keeps a password out of the process list")
}

// orRedisURL is not the default of the flag, because --help would print it.
func orRedisURL(url string) string {
	if url == "" {
		return os.Getenv("REDIS_URL")
	}
	return url
}

// flagError says what a flag accepts.
func flagError(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w; see: %s --help", commandline.FlagError(err), cmd.CommandPath())
}

// needCommand refuses a word that is none of the commands below cmd.
func needCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unknown command %q; use %s %s", args[0], cmd.CommandPath(), strings.Join(commandline.Subcommands(cmd), "|"))
}

// logLevel is a flag with a level.
type logLevel slog.Level

// String returns the value of the flag.
func (l *logLevel) String() string { return slog.Level(*l).String() }

// Set reads a level.
func (l *logLevel) Set(text string) error { return (*slog.Level)(l).UnmarshalText([]byte(text)) }

// Type is the name of the value in --help.
func (*logLevel) Type() string { return "level" }

// blocks is a flag with CIDR blocks.
type blocks struct {
	value   *[]netip.Prefix
	changed bool // the value is no longer the default
}

func newBlocks(value *[]netip.Prefix) *blocks { return &blocks{value: value} }

// String returns the value of the flag.
func (b *blocks) String() string {
	if b.value == nil {
		return ""
	}
	texts := make([]string, 0, len(*b.value))
	for _, block := range *b.value {
		texts = append(texts, block.String())
	}
	return strings.Join(texts, ",")
}

// Set replaces the default, and adds blocks if the flag is repeated.
func (b *blocks) Set(text string) error {
	if !b.changed {
		*b.value, b.changed = nil, true
	}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" { // --flag= means none
			continue
		}
		block, err := netip.ParsePrefix(part)
		if err != nil {
			return fmt.Errorf("%q is not a CIDR block; use a form like 10.0.0.0/8", part)
		}
		*b.value = append(*b.value, block)
	}
	return nil
}

// Type is the name of the value in --help.
func (*blocks) Type() string { return "cidrs" }

// optionalInt is a whole number whose default is not known yet: nil.
type optionalInt struct{ value **int }

// String returns the value of the flag.
func (i *optionalInt) String() string {
	if i.value == nil || *i.value == nil {
		return ""
	}
	return strconv.Itoa(**i.value)
}

// Set replaces the default.
func (i *optionalInt) Set(text string) error {
	number, err := strconv.Atoi(text)
	if err == nil {
		*i.value = &number
	}
	return err
}

// Type is the name of the value in --help.
func (*optionalInt) Type() string { return "int" }
