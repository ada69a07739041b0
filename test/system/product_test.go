package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
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

// product is everything `make run` starts, in this process so that the race detector sees it.
type product struct {
	kube     client.Client
	redis    *redistest.Server
	replicas []string           // base URLs of the API
	internal []string           // base URLs of the same, for rails
	proxies  []*kubeproxy.Proxy // between each replica and the kube-apiserver
	// dispatchers is how many there are; dir has the kubeconfig each of them signs in with.
	dispatchers int
	dir         string
	logs        *logtest.Buffer

	closers []func() error // in the order of starting
}

// startProduct starts a cluster and a Redis of its own, an operator, and as many replicas and dispatchers.
func startProduct(replicas, dispatchers int) (p *product, err error) {
	p = &product{logs: &logtest.Buffer{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	environment, stopKube, err := kubetest.New()
	if err != nil {
		return p, err
	}
	p.closers = append(p.closers, stopKube)
	redis, closeRedis, err := redistest.New()
	if err != nil {
		return p, err
	}
	p.redis = redis
	p.closers = append(p.closers, func() error { closeRedis(); return nil })

	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return p, err
	}
	if p.kube, err = client.New(environment.Config, client.Options{Scheme: scheme}); err != nil {
		return p, err
	}
	dir, err := os.MkdirTemp("", "system")
	if err != nil {
		return p, err
	}
	p.dir = dir
	p.closers = append(p.closers, func() error { return os.RemoveAll(dir) })
	if err := applyAccess(environment, dir); err != nil {
		return p, err
	}
	if err := p.startOperator(environment, dir); err != nil {
		return p, err
	}
	for range replicas {
		if err := p.startReplica(environment, dir); err != nil {
			return p, err
		}
	}
	for range dispatchers {
		if err := p.startDispatcher(environment, dir); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *product) startOperator(environment *envtest.Environment, dir string) error {
	kubeconfig, err := kubeconfigOf(environment, dir, "merchant-operator")
	if err != nil {
		return err
	}
	options := controllers.DefaultOptions()
	options.Kubeconfig = kubeconfig
	options.CredentialsNamespace = credentialsNamespace
	options.LeaderElect = false
	options.Log = p.logger("operator")
	if options.Ops.Address, err = freeAddress(); err != nil {
		return err
	}
	return p.start("operator", options.Ops.Address, func(ctx context.Context) error { return controllers.Run(ctx, options) })
}

func (p *product) startReplica(environment *envtest.Environment, dir string) error {
	account, err := serviceAccount(environment, "merchant-operator-apiserver")
	if err != nil {
		return err
	}
	proxy, err := kubeproxy.Start(account.Config())
	if err != nil {
		return err
	}
	p.proxies = append(p.proxies, proxy)
	p.closers = append(p.closers, func() error { proxy.Close(); return nil })
	name := fmt.Sprintf("apiserver-%d", len(p.replicas)+1)
	kubeconfig, err := proxy.Kubeconfig(dir, name)
	if err != nil {
		return err
	}
	options := apiserver.DefaultOptions()
	options.Kubeconfig = kubeconfig
	options.CredentialsNamespace = credentialsNamespace
	options.RedisURL = p.redis.URL()
	options.DrainDelay = 0
	options.Log = p.logger(name)
	for _, address := range []*string{&options.PublicAddress, &options.InternalAddress, &options.Ops.Address} {
		if *address, err = freeAddress(); err != nil {
			return err
		}
	}
	p.replicas = append(p.replicas, "http://"+options.PublicAddress)
	p.internal = append(p.internal, "http://"+options.InternalAddress)
	return p.start(name, options.Ops.Address, func(ctx context.Context) error { return apiserver.Run(ctx, options) })
}

// start runs one role until the product stops and returns when it is ready.
func (p *product) start(name, opsAddress string, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	p.closers = append(p.closers, func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return fmt.Errorf("%s did not stop", name)
		}
	})
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			ended <- nil
			return fmt.Errorf("%s ended before it was ready: %w\n%s", name, err, p.logs)
		case <-deadline:
			return fmt.Errorf("%s is not ready\n%s", name, p.logs)
		case <-tick.C:
		}
		answer, err := http.Get("http://" + opsAddress + "/readyz")
		if err != nil {
			continue
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return nil
		}
	}
}

// stop ends what was started, the last first.
func (p *product) stop() error {
	var failures []error
	for _, closer := range slices.Backward(p.closers) {
		failures = append(failures, closer())
	}
	p.closers = nil
	return errors.Join(failures...)
}

// applyAccess installs namespaces, service accounts and roles as a platform team would.
func applyAccess(environment *envtest.Environment, dir string) error {
	kubeconfig := filepath.Join(dir, "admin.kubeconfig")
	if err := os.WriteFile(kubeconfig, environment.KubeConfig, 0o600); err != nil {
		return err
	}
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	output, err := exec.Command(kubectl, "--kubeconfig", kubeconfig, "apply", "--server-side", "-k", "../../config/rbac").CombinedOutput()
	if err != nil {
		return fmt.Errorf("apply config/rbac: %w\n%s", err, output)
	}
	return nil
}

// serviceAccount signs in as an account of the system namespace, so that each role has its own
// rights and no more.
func serviceAccount(environment *envtest.Environment, name string) (*envtest.AuthenticatedUser, error) {
	return environment.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + systemNamespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace, "system:authenticated"},
	}, nil)
}

// kubeconfigOf writes a file with which a role signs in.
func kubeconfigOf(environment *envtest.Environment, dir, account string) (path string, err error) {
	user, err := serviceAccount(environment, account)
	if err != nil {
		return "", err
	}
	content, err := user.KubeConfig()
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, account+".kubeconfig")
	return path, os.WriteFile(path, content, 0o600)
}

func (p *product) logger(role string) *slog.Logger {
	return slog.New(slog.NewJSONHandler(p.logs, &slog.HandlerOptions{Level: slog.LevelDebug})).With("role", role)
}

func freeAddress() (string, error) {
	port, err := freeport.Choose()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
