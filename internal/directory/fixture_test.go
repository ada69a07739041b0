package directory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clock "k8s.io/utils/clock/testing"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

const namespace = "credentials"

var now = time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)

// fixture is a directory whose log and metrics a test can read.
type fixture struct {
	*Directory
	keyInformer, merchantInformer *kube.Informer

	log     *bytes.Buffer
	metrics *prometheus.Registry
	events  *keyEvents
	clock   *clock.FakePassiveClock
}

func newFixture() fixture {
	f := fixture{log: &bytes.Buffer{}, metrics: prometheus.NewRegistry(), events: &keyEvents{}, clock: clock.NewFakePassiveClock(now)}
	f.Directory = New(Options{
		Log:        slog.New(slog.NewTextHandler(f.log, nil)),
		Registerer: f.metrics,
		KeyHandler: f.events,
		Now:        f.clock.Now,
	})
	f.keyInformer, f.merchantInformer = f.Informer("key"), f.Informer("merchant")
	return f
}

// issue makes a key of the ApiKey with the uid, and its record.
func issue(t testing.TB, uid, merchantUID types.UID, change ...func(*published.KeyRecord)) (plaintext string, record published.KeyRecord) {
	t.Helper()
	key, err := apikey.New(published.ID(uid))
	if err != nil {
		t.Fatal(err)
	}
	record = published.KeyRecord{
		KeyID:        key.ID(),
		MerchantID:   published.ID(merchantUID),
		Source:       published.Source{Namespace: "shops", Name: "till", UID: uid},
		Generation:   1,
		Revision:     1,
		Current:      published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now},
		State:        v1alpha1.ApiKeyActive,
		LastRotation: published.RotationEvent{Time: now, Cause: v1alpha1.RotationInitial},
	}
	for _, c := range change {
		c(&record)
	}
	return key.Reveal(), record
}

// publish issues a key and puts its record into the directory, as a watch would.
func (f fixture) publish(t testing.TB, uid, merchantUID types.UID, change ...func(*published.KeyRecord)) (plaintext string, record published.KeyRecord) {
	t.Helper()
	plaintext, record = issue(t, uid, merchantUID, change...)
	_ = f.keyInformer.Add(newSecret(t, record))
	return plaintext, record
}

// reissue makes another key with the key id of an ApiKey.
func reissue(t *testing.T, uid types.UID) string {
	t.Helper()
	key, err := apikey.New(published.ID(uid))
	if err != nil {
		t.Fatal(err)
	}
	return key.Reveal()
}

func merchantRecord(uid types.UID, change ...func(*published.MerchantRecord)) published.MerchantRecord {
	record := published.MerchantRecord{
		MerchantID:  published.ID(uid),
		Namespace:   "shops",
		Name:        "acme",
		DisplayName: "Acme",
		State:       v1alpha1.MerchantActive,
		Currency:    "EUR",
		RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
		Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
	}
	for _, c := range change {
		c(&record)
	}
	return record
}

func newSecret(t testing.TB, record published.KeyRecord) *corev1.Secret {
	t.Helper()
	secret, err := published.EncodeKey(namespace, record)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func newConfigMap(t testing.TB, record published.MerchantRecord) *corev1.ConfigMap {
	t.Helper()
	configMap, err := published.EncodeMerchant(namespace, record)
	if err != nil {
		t.Fatal(err)
	}
	return configMap
}

// newerVersion makes an object that a newer program wrote.
func newerVersion(secret *corev1.Secret, resourceVersion string) *corev1.Secret {
	out := secret.DeepCopy()
	out.ResourceVersion = resourceVersion
	for name, data := range out.Data {
		out.Data[name] = []byte(strings.Replace(string(data), `"version":1`, `"version":99`, 1))
	}
	return out
}

// broken makes an object undecodable, without hiding what must not be logged.
func broken(secret *corev1.Secret, resourceVersion string) *corev1.Secret {
	out := secret.DeepCopy()
	out.ResourceVersion = resourceVersion
	for name, data := range out.Data {
		out.Data[name] = []byte(strings.Replace(string(data), `"state":"Active"`, `"state":"Actve"`, 1))
	}
	return out
}

// patience bounds every wait for something that takes milliseconds on an idle machine.
const patience = 30 * time.Second

// sharedConfig is of the one API server; each test has a namespace of its own.
var sharedConfig *rest.Config

func TestMain(m *testing.M) {
	kubetest.Main(m, func(c *kubetest.Cluster) error {
		sharedConfig = c.Environment.Config
		return nil
	})
}

// clusterFixture is a namespace of the real API server and a directory of it.
type clusterFixture struct {
	fixture

	client    *kubernetes.Clientset
	namespace string
}

func newClusterFixture(t *testing.T) clusterFixture {
	t.Helper()
	return clusterFixture{newFixture(), kubernetes.NewForConfigOrDie(sharedConfig), kubetest.Namespace(t, sharedConfig, "credentials-")}
}

// proxyTo returns a proxy and the way through it.
func proxyTo(t *testing.T, config *rest.Config) (*kubeproxy.Proxy, *rest.Config) {
	t.Helper()
	proxy, err := kubeproxy.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	path, err := proxy.Kubeconfig(t.TempDir(), "proxied")
	if err != nil {
		t.Fatal(err)
	}
	proxied, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return proxy, proxied
}

// watch runs until stop is called or the test ends.
func (c clusterFixture) watch(t *testing.T, config *rest.Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.Watch(ctx, kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient(), c.namespace)
	}()
	stop = func() { cancel(); <-stopped }
	t.Cleanup(stop)
	return stop
}

func (c clusterFixture) createMerchant(t *testing.T, uid string) {
	t.Helper()
	configMap := newConfigMap(t, merchantRecord(types.UID(uid)))
	configMap.Namespace = c.namespace
	if _, err := c.client.CoreV1().ConfigMaps(c.namespace).Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c clusterFixture) createKey(t *testing.T, uid, merchantUID string) (plaintext string, created *corev1.Secret) {
	t.Helper()
	plaintext, record := issue(t, types.UID(uid), types.UID(merchantUID))
	secret := newSecret(t, record)
	secret.Namespace = c.namespace
	created, err := c.client.CoreV1().Secrets(c.namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return plaintext, created
}

func (c clusterFixture) update(t *testing.T, secret *corev1.Secret, record published.KeyRecord) {
	t.Helper()
	secret = secret.DeepCopy()
	secret.Data = newSecret(t, record).Data
	if _, err := c.client.CoreV1().Secrets(c.namespace).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c clusterFixture) deleteKey(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	if err := c.client.CoreV1().Secrets(c.namespace).Delete(t.Context(), secret.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c clusterFixture) want(t *testing.T, presented string, want error) {
	t.Helper()
	if _, err := c.Identify(presented, now); !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func (c clusterFixture) eventually(t *testing.T, presented string, want error) {
	t.Helper()
	await.Until(t, patience, fmt.Sprintf("identifying ends with %v", want), func() bool {
		_, err := c.Identify(presented, now)
		return errors.Is(err, want)
	})
}
