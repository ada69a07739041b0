package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

const (
	credentialsNamespace = "merchant-operator-credentials"
	sampleNamespace      = "shops"
)

// environment is everything that runs, in the order in which it was started.
type environment struct {
	root, directory, assets string
	programs                *programs
	addresses               addresses

	cluster *envtest.Environment
	admin   client.Client
	redis   string // which one it is
	sample  sample
	// railToken is a bearer token that may settle.
	railToken string

	stops []stop
}

// stop undoes one start.
type stop struct {
	what string
	do   func() error
}

func newEnvironment(root, directory string, fail context.CancelCauseFunc) *environment {
	return &environment{
		root:      root,
		directory: directory,
		assets:    os.Getenv("KUBEBUILDER_ASSETS"),
		programs:  &programs{logs: filepath.Join(directory, "logs"), fail: fail},
	}
}

func (e *environment) onStop(what string, do func() error) {
	e.stops = append(e.stops, stop{what: what, do: do})
}

// up starts everything, up to the banner.
func (e *environment) up(ctx context.Context) (err error) {
	if e.assets == "" {
		return errors.New("KUBEBUILDER_ASSETS is not set: start this with `make run`")
	}
	if e.addresses, err = chooseAddresses(ctx); err != nil {
		return err
	}
	for _, s := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"Redis", e.startRedis},
		{"Kubernetes API, with the CRDs", e.startControlPlane},
		{"namespaces, service accounts and their rights", e.prepareCluster},
		{"operator, two replicas of the API, dispatcher", e.startRoles},
		{"samples", e.applySamples},
		{"rail's token", e.issueRailToken},
		{"receiver of webhooks", e.startSink},
	} {
		if err := step(s.what, func() error { return s.do(ctx) }); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := e.writeEnv(); err != nil {
		return err
	}
	e.banner()
	return nil
}

// down stops what was started, the latest first, and goes on when something resists.
func (e *environment) down() error {
	if len(e.stops) > 0 {
		fmt.Println("\n==> stopping")
	}
	var failures []error
	for _, s := range slices.Backward(e.stops) {
		if err := s.do(); err != nil {
			failures = append(failures, fmt.Errorf("stop %s: %w", s.what, err))
		}
	}
	return errors.Join(failures...)
}

// prepareCluster makes what a cluster has before the product is installed, and the product's own accounts.
func (e *environment) prepareCluster(ctx context.Context) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	admin, err := client.New(e.cluster.Config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make a client for the Kubernetes API: %w", err)
	}
	e.admin = admin
	if err := e.watchControlPlane(ctx); err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sampleNamespace}}
	if err := e.admin.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create namespace %s: %w", sampleNamespace, err)
	}
	if err := writeKubeconfig(e.kubeconfig("admin"), e.cluster.Config, sampleNamespace); err != nil {
		return err
	}
	return e.apply(ctx, "config/rbac") // which has the product's own namespaces
}
