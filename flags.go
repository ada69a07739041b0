package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/merchant-operator/merchant-operator/internal/ops"
)

func addKubeconfig(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "kubeconfig", *path, "kubeconfig file; empty: $KUBECONFIG, then the service account of the pod")
}

func addOps(flags *pflag.FlagSet, options *ops.Options) {
	flags.StringVar(&options.Address, "ops-address", options.Address, "listen address of the ops port: /healthz, /readyz and /metrics")
	flags.BoolVar(&options.Secure, "secure-metrics", false, "use TLS on the ops port, and require Kubernetes authentication and authorization for /metrics")
	flags.StringVar(&options.CertificateDir, "ops-cert-dir", "", "directory with tls.crt and tls.key for the ops port; empty: create a self-signed certificate")
	flags.BoolVar(&options.Profiles, "pprof", false, "serve Go profiles at /debug/pprof/ on the ops port; needs --secure-metrics or a loopback --ops-address")
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

// blocks is a flag with CIDR blocks.
type blocks []netip.Prefix

// String returns the value of the flag.
func (b *blocks) String() string {
	texts := make([]string, 0, len(*b))
	for _, block := range *b {
		texts = append(texts, block.String())
	}
	return strings.Join(texts, ",")
}

// Set adds blocks; the flag may be repeated.
func (b *blocks) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" { // --flag= means none
			continue
		}
		block, err := netip.ParsePrefix(part)
		if err != nil {
			return fmt.Errorf("%q is not a CIDR block; use a form like 10.0.0.0/8", part)
		}
		*b = append(*b, block)
	}
	return nil
}

// Type is the name of the value in --help.
func (*blocks) Type() string { return "cidrs" }
