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
	flags.StringVar(path, "kubeconfig", *path, "kubeconfig file; empty: $KUBECONFIG, then the pod's own service account")
}

func addOps(flags *pflag.FlagSet, options *ops.Options) {
	flags.StringVar(&options.Address, "ops-address", options.Address, "listen address of /healthz, /readyz and /metrics")
	flags.BoolVar(&options.Secure, "secure-metrics", false, "serve the ops port over TLS, and require Kubernetes authentication and authorization for /metrics")
	flags.StringVar(&options.CertificateDir, "ops-cert-dir", "", "directory with tls.crt and tls.key of the ops port; empty: a self-signed certificate")
	flags.BoolVar(&options.Profiles, "pprof", false, "serve profiles at /debug/pprof/ of the ops port; needs --secure-metrics, or an --ops-address on loopback")
}

func addRedisURL(flags *pflag.FlagSet, url *string) {
	flags.StringVar(url, "redis-url", "", "Redis as a URL; empty: $REDIS_URL, which keeps a password out of the process list")
}

// orRedisURL is not the flag's default, which --help would print.
func orRedisURL(url string) string {
	if url == "" {
		return os.Getenv("REDIS_URL")
	}
	return url
}

// blocks is a flag of CIDR blocks.
type blocks []netip.Prefix

// String is the flag's text.
func (b *blocks) String() string {
	texts := make([]string, 0, len(*b))
	for _, block := range *b {
		texts = append(texts, block.String())
	}
	return strings.Join(texts, ",")
}

// Set adds blocks; a flag may be given more than once.
func (b *blocks) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part == "" { // --flag= is none
			continue
		}
		block, err := netip.ParsePrefix(part)
		if err != nil {
			return fmt.Errorf("%q is not a CIDR block such as 10.0.0.0/8", part)
		}
		*b = append(*b, block)
	}
	return nil
}

// Type is what --help calls the value.
func (*blocks) Type() string { return "cidrs" }
