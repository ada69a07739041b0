package apiserver_test

import (
	"errors"
	"flag"
	"log"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/leaks"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// patience bounds every wait for something that takes milliseconds on an idle machine.
const patience = 30 * time.Second

// What all tests share. Each has a namespace, hence merchants, of its own.
var (
	kubeConfig  *rest.Config
	kube        *kubernetes.Clientset
	sharedRedis *redistest.Server
)

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	if flag.Lookup("test.fuzz").Value.String() != "" {
		m.Run() // needs nothing of this, and each of its workers would start it all
		return
	}
	if err := runTests(m); err != nil {
		log.Fatal(err)
	}
}

func runTests(m *testing.M) error {
	environment, stop, err := kubetest.New()
	if err != nil {
		return err
	}
	kubeConfig = environment.Config
	kubeConfig.QPS = -1
	if kube, err = kubernetes.NewForConfig(kubeConfig); err != nil {
		return errors.Join(err, stop())
	}
	server, closeRedis, err := redistest.New()
	if err != nil {
		return errors.Join(err, stop())
	}
	sharedRedis = server
	leaks.Run(m, func() error { closeRedis(); return stop() })
	return nil
}

// fixture is one test's credentials namespace, with the operator's part.
type fixture struct {
	t          *testing.T
	namespace  string
	kubeConfig *rest.Config    // of the replicas
	cutOff     bool            // replicas start without a way to the Kubernetes API
	log        *logtest.Buffer // of the replicas
	replicas   int             // started so far
	issued     []string        // keys
}

// newFixture also sees to it that no key of the fixture gets into the log of a replica.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, namespace: kubetest.Namespace(t, kubeConfig, "credentials-"), kubeConfig: kubeConfig, log: &logtest.Buffer{}}
	t.Cleanup(func() {
		logged := f.log.String()
		for _, key := range f.issued {
			if strings.Contains(logged, key) || strings.Contains(logged, apikey.DigestOf(key).Hex()) {
				t.Fatalf("a key or its digest is in the log:\n%s", logged)
			}
		}
	})
	return f
}

// merchant publishes a merchant with limits no test runs into.
func (f *fixture) merchant(name string, change ...func(*published.MerchantRecord)) published.MerchantRecord {
	f.t.Helper()
	record := published.MerchantRecord{
		MerchantID:  published.ID(types.UID(f.namespace + "/" + name)),
		Namespace:   "shops",
		Name:        name,
		DisplayName: "Acme " + name,
		State:       v1alpha1.MerchantActive,
		Currency:    "EUR",
		RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 100_000},
		Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
	}
	for _, c := range change {
		c(&record)
	}
	configMap := f.configMap(record)
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Create(f.t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return record
}

// changeMerchant publishes another version.
func (f *fixture) changeMerchant(record published.MerchantRecord) {
	f.t.Helper()
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Update(f.t.Context(), f.configMap(record), metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) configMap(record published.MerchantRecord) *corev1.ConfigMap {
	f.t.Helper()
	configMap, err := published.EncodeMerchant(f.namespace, record)
	if err != nil {
		f.t.Fatal(err)
	}
	return configMap
}

// key publishes a key of the merchant and returns it in plaintext.
func (f *fixture) key(name string, merchant published.MerchantRecord, change ...func(*published.KeyRecord)) string {
	f.t.Helper()
	uid := types.UID(f.namespace + "/" + name)
	key := f.newKey(published.ID(uid))
	now := time.Now().UTC()
	record := published.KeyRecord{
		KeyID:        key.ID(),
		MerchantID:   merchant.MerchantID,
		Source:       published.Source{Namespace: "shops", Name: name, UID: uid},
		Generation:   1,
		Revision:     1,
		Current:      published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now},
		State:        v1alpha1.ApiKeyActive,
		LastRotation: published.RotationEvent{Time: now, Cause: v1alpha1.RotationInitial},
	}
	for _, c := range change {
		c(&record)
	}
	secret, err := published.EncodeKey(f.namespace, record)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := kube.CoreV1().Secrets(f.namespace).Create(f.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return key.Reveal()
}

// newKey makes a key that is not published.
func (f *fixture) newKey(keyID string) apikey.Key {
	f.t.Helper()
	key, err := apikey.New(keyID)
	if err != nil {
		f.t.Fatal(err)
	}
	f.issued = append(f.issued, key.Reveal())
	return key
}

// secretOf reads the published Secret of a key.
func (f *fixture) secretOf(key string) *corev1.Secret {
	f.t.Helper()
	parsed, err := apikey.Parse(key)
	if err != nil {
		f.t.Fatal(err)
	}
	secret, err := kube.CoreV1().Secrets(f.namespace).Get(f.t.Context(), published.KeyName(parsed.ID()), metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return secret
}

func (f *fixture) updateSecret(secret *corev1.Secret) {
	f.t.Helper()
	if _, err := kube.CoreV1().Secrets(f.namespace).Update(f.t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}
