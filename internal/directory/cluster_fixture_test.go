package directory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

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
	configMap := configMapOf(t, merchantRecord(types.UID(uid)))
	configMap.Namespace = c.namespace
	if _, err := c.client.CoreV1().ConfigMaps(c.namespace).Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c clusterFixture) createKey(t *testing.T, uid, merchantUID string) (plaintext string, created *corev1.Secret) {
	t.Helper()
	plaintext, record := issue(t, types.UID(uid), types.UID(merchantUID))
	secret := secretOf(t, record)
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
	secret.Data = secretOf(t, record).Data
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
