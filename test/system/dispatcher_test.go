package system

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/dispatcher"
)

// startDispatcher starts one more, which may deliver to receivers of the tests and tries again soon.
func (p *product) startDispatcher(environment *envtest.Environment, dir string) error {
	kubeconfig, err := kubeconfigOf(environment, dir, "merchant-operator-dispatcher")
	if err != nil {
		return err
	}
	p.dispatchers++
	name := fmt.Sprintf("dispatcher-%d", p.dispatchers)
	options := dispatcher.DefaultOptions()
	options.Kubeconfig = kubeconfig
	options.CredentialsNamespace = credentialsNamespace
	options.RedisURL = p.redis.URL()
	options.AllowHTTP = true
	options.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	options.Schedule = dispatcher.Schedule{0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}
	options.Log = p.logger(name)
	if options.Ops.Address, err = freeAddress(); err != nil {
		return err
	}
	return p.start(name, options.Ops.Address, func(ctx context.Context) error { return dispatcher.Run(ctx, options) })
}
