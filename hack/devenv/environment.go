package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

const (
	credentialsNamespace = "merchant-operator-credentials"
	sampleNamespace      = "shops"
)

// environment is everything that runs.
type environment struct {
	root, directory, assets string
	programs                *programs
	addresses               addresses

	cluster *envtest.Environment
	admin   client.Client
	redis   string // the program, or that it is embedded
	sample  sample
	// railToken is a bearer token that may settle.
	railToken string
	people    [2]oidctest.User // of the console
	// payerURL is the page of a session of the sample merchant.
	payerURL string

	stops []func() error
}

func (e *environment) onStop(what string, do func() error) {
	e.stops = append(e.stops, func() error {
		if err := do(); err != nil {
			return fmt.Errorf("stop %s: %w", what, err)
		}
		return nil
	})
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
		{"starting Redis", e.startRedis},
		{"starting the mail server", e.startMail},
		{"starting the Kubernetes API, and installing the CRDs", e.startControlPlane},
		{"creating namespaces, service accounts and roles", e.prepareCluster},
		{"starting the operator, two API replicas and the dispatcher", e.startRoles},
		{"starting the console and its OpenID provider", e.startConsole},
		{"applying config/samples, and waiting for the API key", e.applySamples},
		{"requesting a token for the rail", e.issueRailToken},
		{"starting the demo bank", e.startBank},
		{"starting the webhook receiver", e.startReceiver},
		{"creating a session for a payer", e.createSession},
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

// down stops everything that was started, the latest first, also after errors.
func (e *environment) down() error {
	if len(e.stops) > 0 {
		fmt.Println("\n==> stopping")
	}
	var failures []error
	for _, stop := range slices.Backward(e.stops) {
		failures = append(failures, stop())
	}
	return errors.Join(failures...)
}

// prepareCluster creates what a cluster has before the roles are installed, and the service accounts of the roles.
func (e *environment) prepareCluster(ctx context.Context) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	admin, err := client.New(e.cluster.Config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("make a client for the Kubernetes API: %w", err)
	}
	e.admin = admin
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sampleNamespace}}
	if err := e.admin.Create(ctx, namespace); err != nil {
		return fmt.Errorf("create namespace %s: %w", sampleNamespace, err)
	}
	if err := writeKubeconfig(e.kubeconfig("admin"), e.cluster.Config, sampleNamespace); err != nil {
		return err
	}
	if err := e.apply(ctx, "config/rbac"); err != nil { // and the namespaces of the roles
		return err
	}
	return e.apply(ctx, "config/console/rbac")
}

// claim locks .dev, and removes what an earlier run has left in it. The kernel releases the lock when the process ends, also
// when it is killed.
func claim(directory string) (release func(), err error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("make %s: %w", directory, err)
	}
	path := filepath.Join(directory, "lock")
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	release = func() { _ = lock.Close() }
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer release()
		owner, _ := os.ReadFile(path)
		return nil, fmt.Errorf("it already runs here (process %s); stop that first, or use it: set -a; . .dev/env; set +a (%w)", owner, err)
	}
	entries, err := os.ReadDir(directory)
	for _, entry := range entries {
		if entry.Name() != "lock" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(directory, entry.Name())))
		}
	}
	if err := errors.Join(err,
		os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o600),
		os.Mkdir(filepath.Join(directory, "logs"), 0o700),
	); err != nil {
		release()
		return nil, fmt.Errorf("prepare %s: %w", directory, err)
	}
	return release, nil
}

// addresses are host:port each. Two replicas: index 0 and 1.
type addresses struct {
	public, internal, ops [2]string
	operatorOps           string
	dispatcherOps         string
	redis, receiver, bank string
	mail, mailSink        string // SMTP, and the page that shows what came
	console, consoleOps   string
	provider              string // OpenID
}

// chooseAddresses takes the ports that --help lists if they are free.
func chooseAddresses(ctx context.Context) (addresses, error) {
	var a addresses
	for _, preferred := range []struct {
		address *string
		port    int
	}{
		{&a.public[0], 8080},
		{&a.public[1], 8082},
		{&a.internal[0], 8081},
		{&a.internal[1], 8083},
		{&a.operatorOps, 9090},
		{&a.ops[0], 9091},
		{&a.ops[1], 9092},
		{&a.dispatcherOps, 9093},
		{&a.consoleOps, 9094},
		{&a.console, 8084},
		{&a.provider, 8085},
		{&a.bank, 8086},
		{&a.receiver, 8090},
		{&a.mail, 1025},
		{&a.mailSink, 8025},
		{&a.redis, 16379},
	} {
		address, err := freeAddress(ctx, preferred.port)
		if err != nil {
			return addresses{}, err
		}
		*preferred.address = address
	}
	return a, nil
}

func freeAddress(ctx context.Context, preferred int) (string, error) {
	var listeners net.ListenConfig
	listener, err := listeners.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(preferred)))
	if err != nil {
		if listener, err = listeners.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		fmt.Printf("    port %d is in use; using %s\n", preferred, listener.Addr())
	}
	address := listener.Addr().String()
	return address, listener.Close()
}

// patienceToStart is enough for each program to become ready on a busy machine.
const patienceToStart = time.Minute

// eventually tries until it succeeds. Its error says what it waited for, and why the last try failed.
func eventually(ctx context.Context, what string, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patienceToStart, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("waited %s for %s: %w", patienceToStart, what, last)
	}
	return nil
}
