package observability

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

const (
	systemNamespace      = "merchant-operator-system"
	credentialsNamespace = "merchant-operator-credentials"

	// patience bounds every wait for something that takes milliseconds on an idle machine.
	patience = 30 * time.Second
)

// product is one of each role, in this process.
type product struct {
	environment *envtest.Environment
	kube        client.Client
	redis       *redistest.Server
	dir         string // of kubeconfigs
	public      string // base URL
	internal    string // base URL
	ops         map[string]string
	token       string                      // of who may read the metrics
	spans       *tracetest.InMemoryExporter // of the apiserver and the dispatcher
	delivered   atomic.Pointer[http.Header] // of the latest webhook
	logs        logtest.Buffer
	secrets     []string // must be nowhere in what is shown

	closers []func() error // in the order of starting
}

// The roles, as they are called in docs/observability.md.
const (
	operatorRole   = "operator"
	apiserverRole  = "apiserver"
	dispatcherRole = "dispatcher"
)

func (p *product) start() error {
	environment, stopKube, err := kubetest.New()
	if err != nil {
		return err
	}
	p.environment = environment
	p.closers = append(p.closers, stopKube)
	redis, closeRedis, err := redistest.New()
	if err != nil {
		return err
	}
	p.redis = redis
	p.closers = append(p.closers, func() error { closeRedis(); return nil })
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	if p.kube, err = client.New(environment.Config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "observability"); err != nil {
		return err
	}
	p.closers = append(p.closers, func() error { return os.RemoveAll(p.dir) })
	if err := p.applyAccess(); err != nil {
		return err
	}
	p.ops = map[string]string{}
	p.spans = tracetest.NewInMemoryExporter()
	for _, start := range []func() error{p.startOperator, p.startAPIServer, p.startDispatcher} {
		if err := start(); err != nil {
			return err
		}
	}
	return nil
}

func (p *product) startOperator() (err error) {
	options := controllers.DefaultOptions()
	options.Ops.Secure, options.Ops.Profiles = true, true
	options.LeaderElectionNamespace = systemNamespace
	options.Log = p.logger(operatorRole)
	if options.Kubeconfig, err = p.kubeconfigOf("merchant-operator"); err != nil {
		return err
	}
	if options.Ops.Address, err = freeAddress(); err != nil {
		return err
	}
	return p.run(operatorRole, options.Ops.Address, func(ctx context.Context) error { return controllers.Run(ctx, options) })
}

func (p *product) startAPIServer() (err error) {
	options := apiserver.DefaultOptions()
	options.Ops.Secure, options.Ops.Profiles = true, true
	options.RedisURL = p.redis.URL()
	options.DrainDelay = 0
	options.Spans = sdktrace.NewSimpleSpanProcessor(p.spans)
	options.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 5}
	options.Log = p.logger(apiserverRole)
	if options.Kubeconfig, err = p.kubeconfigOf("merchant-operator-apiserver"); err != nil {
		return err
	}
	for _, address := range []*string{&options.PublicAddress, &options.InternalAddress, &options.Ops.Address} {
		if *address, err = freeAddress(); err != nil {
			return err
		}
	}
	p.public, p.internal = "http://"+options.PublicAddress, "http://"+options.InternalAddress
	return p.run(apiserverRole, options.Ops.Address, func(ctx context.Context) error { return apiserver.Run(ctx, options) })
}

func (p *product) startDispatcher() (err error) {
	options := dispatcher.DefaultOptions()
	options.Ops.Secure, options.Ops.Profiles = true, true
	options.RedisURL = p.redis.URL()
	options.AllowHTTP = true
	options.Spans = sdktrace.NewSimpleSpanProcessor(p.spans)
	options.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	options.Log = p.logger(dispatcherRole)
	if options.Kubeconfig, err = p.kubeconfigOf("merchant-operator-dispatcher"); err != nil {
		return err
	}
	if options.Ops.Address, err = freeAddress(); err != nil {
		return err
	}
	return p.run(dispatcherRole, options.Ops.Address, func(ctx context.Context) error { return dispatcher.Run(ctx, options) })
}

// run runs a role until the product stops and returns when it is ready.
func (p *product) run(role, opsAddress string, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	p.closers = append(p.closers, func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return fmt.Errorf("the %s did not stop", role)
		}
	})
	p.ops[role] = "https://" + opsAddress
	return p.eventually("the "+role+" is ready", func() (bool, error) {
		select {
		case err := <-ended:
			ended <- nil
			return false, fmt.Errorf("it ended: %w", err)
		default:
		}
		answer, err := insecure.Get(p.ops[role] + "/readyz") // as the kubelet does, without a token
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		return answer.StatusCode == http.StatusOK, answer.Body.Close()
	})
}

// eventually is for what is done outside of a test, hence the error.
func (p *product) eventually(what string, holds func() (bool, error)) error {
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := holds()
		if err != nil {
			return fmt.Errorf("wait until %s: %w\n%s", what, err, &p.logs)
		}
		if done {
			return nil
		}
		select {
		case <-deadline:
			return fmt.Errorf("waited in vain until %s\n%s", what, &p.logs)
		case <-tick.C:
		}
	}
}

// stop ends what was started, the last first.
func (p *product) stop() {
	var failures []error
	for _, closer := range slices.Backward(p.closers) {
		failures = append(failures, closer())
	}
	if err := errors.Join(failures...); err != nil {
		panic(err)
	}
}

func (p *product) logger(role string) *slog.Logger {
	return slog.New(slog.NewJSONHandler(&p.logs, &slog.HandlerOptions{Level: slog.LevelDebug})).With("role", role)
}

func freeAddress() (string, error) {
	port, err := freeport.Choose()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
