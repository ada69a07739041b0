//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

const (
	systemNamespace      = "merchant-operator-system"
	credentialsNamespace = "merchant-operator-credentials"

	operatorAccount   = "merchant-operator"
	apiserverAccount  = "merchant-operator-apiserver"
	dispatcherAccount = "merchant-operator-dispatcher"
)

// cluster is a Kubernetes API with the operator, and the program that all roles are processes of.
type cluster struct {
	environment *envtest.Environment
	kube        client.Client
	program     string
	dir         string
	logs        *logtest.Buffer // of all processes
	operator    *process
	asked       *counter       // what the operator asks the Kubernetes API
	metrics     logtest.Buffer // of all processes, as they showed them before they ended
	spans       *spans         // of all processes

	mu      sync.Mutex
	secrets []string

	closers []func() error // in the order of starting
}

func startCluster() (c *cluster, err error) {
	c = &cluster{logs: &logtest.Buffer{}, asked: &counter{}}
	shared = c // processes log to it
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if c.dir, err = os.MkdirTemp("", "faults"); err != nil {
		return c, err
	}
	c.closers = append(c.closers, func() error { return os.RemoveAll(c.dir) })
	c.program = filepath.Join(c.dir, "merchant-operator")
	if output, err := exec.Command("go", "build", "-o", c.program, "../..").CombinedOutput(); err != nil {
		return c, fmt.Errorf("build: %w\n%s", err, output)
	}
	c.spans = receiveSpans()
	c.closers = append(c.closers, func() error { c.spans.Close(); return nil })
	environment, stopKube, err := kubetest.New()
	if err != nil {
		return c, err
	}
	c.environment = environment
	c.closers = append(c.closers, stopKube)
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return c, err
	}
	if c.kube, err = client.New(environment.Config, client.Options{Scheme: scheme}); err != nil {
		return c, err
	}
	if err := c.applyAccess(); err != nil {
		return c, err
	}
	return c, c.startOperator()
}

func (c *cluster) startOperator() error {
	user, err := c.account(operatorAccount)
	if err != nil {
		return err
	}
	config := user.Config()
	config.Wrap(c.asked.wrap)
	toKube, err := kubeproxy.Start(config)
	if err != nil {
		return err
	}
	c.closers = append(c.closers, func() error { toKube.Close(); return nil })
	kubeconfig, err := toKube.Kubeconfig(c.dir, "operator-proxied")
	if err != nil {
		return err
	}
	ops, err := freeAddress()
	if err != nil {
		return err
	}
	c.operator = &process{name: "operator", ops: ops, toKube: toKube, args: []string{
		"operator", "--kubeconfig", kubeconfig, "--ops-address", ops, "--leader-elect=false",
	}}
	c.closers = append(c.closers, c.operator.stop)
	return c.operator.start()
}

// applyAccess installs namespaces, service accounts and roles as a platform team would.
func (c *cluster) applyAccess() error {
	kubeconfig := filepath.Join(c.dir, "admin.kubeconfig")
	if err := os.WriteFile(kubeconfig, c.environment.KubeConfig, 0o600); err != nil {
		return err
	}
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	output, err := exec.Command(kubectl, "--kubeconfig", kubeconfig, "apply", "--server-side", "-k", "../../config/rbac").CombinedOutput()
	if err != nil {
		return fmt.Errorf("apply config/rbac: %w\n%s", err, output)
	}
	return nil
}

// account signs in as an account of the system namespace, so that each role has its own rights and no more.
func (c *cluster) account(name string) (*envtest.AuthenticatedUser, error) {
	return c.environment.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + systemNamespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace, "system:authenticated"},
	}, nil)
}

// logger is for roles that run in this process.
func (c *cluster) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(c.logs, nil)) }

// stop ends what was started, the last first.
func (c *cluster) stop() error {
	var failures []error
	for _, closer := range slices.Backward(c.closers) {
		failures = append(failures, closer())
	}
	c.closers = nil
	return errors.Join(failures...)
}

func (c *cluster) get(ctx context.Context, namespace, name string, into client.Object) error {
	return c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
}
