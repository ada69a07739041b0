package controllers

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
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
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

func TestOperator(t *testing.T) {
	RegisterFailHandler(Fail)
	// Far more than anything needs on an idle machine.
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Operator")
}

// environment is the one API server of the suite, and administrator its client without any cache. Each test has namespaces and an
// operator of its own.
var (
	environment   *envtest.Environment
	administrator client.Client
)

var _ = BeforeSuite(func() {
	environment = kubetest.Start(GinkgoTB())
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	var err error
	administrator, err = client.New(environment.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
})

// fixture is what one test runs in: a tenant's namespace, a credentials namespace, and an operator for
// the two that can be stopped, restarted and made to fail.
type fixture struct {
	kube                   client.Client // the administrator's
	namespace, credentials string
	clock                  *shiftedClock
	logs                   *logtest.Buffer
	stop                   func()
}

// newFixture starts the operator, whose writes pass the hooks.
func newFixture(hooks ...interceptor.Funcs) *fixture {
	GinkgoHelper()
	f := &fixture{kube: administrator, clock: &shiftedClock{}, logs: &logtest.Buffer{}}
	f.namespace = f.newNamespace("shops-")
	f.credentials = f.newNamespace("credentials-")
	f.startOperator(hooked(hooks...))
	DeferCleanup(func() { f.stop() })
	// A pass that panics is recovered and tried again, and might then succeed.
	DeferCleanup(func() { Expect(f.logs.String()).NotTo(ContainSubstring("Observed a panic")) })
	// Whatever a test did, what it leaves must read the same to every tool.
	DeferCleanup(f.expectConformance)
	return f
}

func (f *fixture) newNamespace(prefix string) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	Expect(f.kube.Create(context.Background(), namespace)).To(Succeed())
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

// startOperator runs an operator, until f.stop, with options that differ from those of a test.
func (f *fixture) startOperator(differ ...func(*Options)) {
	GinkgoHelper()
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, environment.KubeConfig, 0o600)).To(Succeed())
	options := DefaultOptions()
	options.Kubeconfig = kubeconfig
	options.CredentialsNamespace = f.credentials
	options.WatchNamespaces = []string{f.namespace}
	options.Ops.Address = "127.0.0.1:0"
	options.LeaderElect = false
	options.Clock = f.clock
	options.maxClockDifference = anyClock
	options.Log = slog.New(slog.NewJSONHandler(io.MultiWriter(f.logs, GinkgoWriter), &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, change := range differ {
		change(&options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options) }()
	f.stop = sync.OnceFunc(func() {
		GinkgoHelper()
		cancel()
		Eventually(ended).Should(Receive(BeNil()), "the operator ends in order")
	})
}

// restart stops the operator and starts another, which hooks nothing.
func (f *fixture) restart() {
	GinkgoHelper()
	f.stop()
	f.startOperator()
}

// shiftedClock is the real clock, moved ahead.
type shiftedClock struct{ ahead atomic.Int64 }

func (c *shiftedClock) Now() time.Time                  { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *shiftedClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c *shiftedClock) advance(d time.Duration)         { c.ahead.Add(int64(d)) }

// merchantBuilder builds a Merchant; keyBuilder builds an ApiKey. Each starts with the least a
// manifest needs.
type (
	merchantBuilder struct{ *v1alpha1.Merchant }
	keyBuilder      struct{ *v1alpha1.ApiKey }
)

func aMerchant(name string) merchantBuilder {
	return merchantBuilder{&v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.MerchantSpec{DisplayName: "Acme " + name},
	}}
}

func (b merchantBuilder) state(state v1alpha1.MerchantState) merchantBuilder {
	b.Spec.State = state
	return b
}

func (b merchantBuilder) webhook(edits ...func(*v1alpha1.Webhook)) merchantBuilder {
	b.Spec.Webhook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}
	for _, edit := range edits {
		edit(b.Spec.Webhook)
	}
	return b
}

func aKey(name, merchant string) keyBuilder {
	return keyBuilder{&v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: merchant}},
	}}
}

func (b keyBuilder) deliveredAs(secret string) keyBuilder {
	b.Spec.Delivery = &v1alpha1.Delivery{SecretName: secret}
	return b
}

func (b keyBuilder) undelivered() keyBuilder {
	b.Spec.Delivery = &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}
	return b
}

func (b keyBuilder) retained(d time.Duration) keyBuilder {
	b.Spec.Delivery = &v1alpha1.Delivery{RetainSeconds: new(int32(d / time.Second))}
	return b
}

func (b keyBuilder) trigger(trigger string) keyBuilder {
	b.Spec.Rotation.Trigger = trigger
	return b
}

func (b keyBuilder) overlap(d time.Duration) keyBuilder {
	b.Spec.Rotation.OverlapSeconds = new(int32(d / time.Second))
	return b
}

func (b keyBuilder) every(d time.Duration) keyBuilder {
	b.Spec.Rotation.EverySeconds = new(int32(d / time.Second))
	return b
}

func (b keyBuilder) digest(digest apikey.Digest) keyBuilder {
	b.Spec.KeyDigest = digest.Hex()
	return b
}

func (b keyBuilder) expires(at time.Time) keyBuilder {
	b.Spec.ExpiresAt = &metav1.Time{Time: at}
	return b
}

func (b keyBuilder) annotated(name, value string) keyBuilder {
	b.Labels = map[string]string{name: value}
	b.Annotations = map[string]string{name: value}
	return b
}
