package controllers

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

// world is what one test lives in: a tenant's namespace, a credentials namespace, and an operator for
// the two that can be stopped, restarted and made to fail.
type world struct {
	kube                   client.Client // an administrator's, without any cache
	namespace, credentials string
	clock                  *shiftedClock
	logs                   *logtest.Buffer
	stop                   func()
}

// newWorld starts the operator, whose writes pass the hooks.
func newWorld(hooks ...interceptor.Funcs) *world {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	kube, err := client.New(environment.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	w := &world{kube: kube, clock: &shiftedClock{}, logs: &logtest.Buffer{}}
	w.namespace = w.newNamespace("shops-")
	w.credentials = w.newNamespace("credentials-")
	w.startOperator(hooked(hooks...))
	DeferCleanup(func() { w.stop() })
	// A pass that panics is recovered and tried again, and might then succeed.
	DeferCleanup(func() { Expect(w.logs.String()).NotTo(ContainSubstring("Observed a panic")) })
	// Whatever a test did, what it leaves must read the same to every tool.
	DeferCleanup(w.expectConformance)
	return w
}

func (w *world) newNamespace(prefix string) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	Expect(w.kube.Create(context.Background(), namespace)).To(Succeed())
	return namespace.Name
}

// hooked lets every write of the operator pass the hooks.
func hooked(hooks ...interceptor.Funcs) func(*Options) {
	return func(o *Options) {
		o.newClient = func(config *rest.Config, options client.Options) (client.Client, error) {
			c, err := client.NewWithWatch(config, options)
			for _, hook := range hooks {
				c = interceptor.NewClient(c, hook)
			}
			return c, err
		}
	}
}

// startOperator runs an operator, until w.stop, with options that differ from those of a test.
func (w *world) startOperator(differ ...func(*Options)) {
	GinkgoHelper()
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, environment.KubeConfig, 0o600)).To(Succeed())
	options := DefaultOptions()
	options.Kubeconfig = kubeconfig
	options.CredentialsNamespace = w.credentials
	options.WatchNamespaces = []string{w.namespace}
	options.OpsAddress = "127.0.0.1:0"
	options.LeaderElect = false
	options.Clock = w.clock
	options.Log = slog.New(slog.NewJSONHandler(io.MultiWriter(w.logs, GinkgoWriter), &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, change := range differ {
		change(&options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options) }()
	w.stop = sync.OnceFunc(func() {
		GinkgoHelper()
		cancel()
		Eventually(ended).Should(Receive(BeNil()), "the operator ends in order")
	})
}

// restart stops the operator and starts another, which hooks nothing.
func (w *world) restart() {
	GinkgoHelper()
	w.stop()
	w.startOperator()
}

// shiftedClock is the real clock, moved ahead.
type shiftedClock struct{ ahead atomic.Int64 }

func (c *shiftedClock) Now() time.Time                  { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *shiftedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *shiftedClock) advance(d time.Duration)         { c.ahead.Add(int64(d)) }
