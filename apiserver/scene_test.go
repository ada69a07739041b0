package apiserver_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

// scene is one test's credentials namespace. It plays the operator.
type scene struct {
	t          *testing.T
	namespace  string
	kubeConfig *rest.Config    // of the replicas
	cutOff     bool            // replicas start without a way to the Kubernetes API
	log        *logtest.Buffer // of the replicas
	replicas   int             // started so far
	issued     []string        // keys
}

// newScene also sees to it that no key of the scene gets into the log of a replica.
func newScene(t *testing.T) *scene {
	t.Helper()
	namespace, err := kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "credentials-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, namespace: namespace.Name, kubeConfig: kubeConfig, log: &logtest.Buffer{}}
	t.Cleanup(func() {
		logged := s.log.String()
		for _, key := range s.issued {
			if strings.Contains(logged, key) || strings.Contains(logged, apikey.DigestOf(key).Hex()) {
				t.Fatalf("a key or its digest is in the log:\n%s", logged)
			}
		}
	})
	return s
}

// merchant publishes a merchant with limits no test runs into.
func (s *scene) merchant(name string, change ...func(*published.MerchantRecord)) published.MerchantRecord {
	s.t.Helper()
	record := published.MerchantRecord{
		MerchantID:  published.ID(types.UID(s.namespace + "/" + name)),
		Namespace:   "shops",
		Name:        name,
		DisplayName: "Acme " + name,
		State:       v1alpha1.MerchantActive,
		RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 100_000},
		Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
	}
	for _, c := range change {
		c(&record)
	}
	configMap := s.configMap(record)
	if _, err := kube.CoreV1().ConfigMaps(s.namespace).Create(s.t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return record
}

// changeMerchant publishes another version.
func (s *scene) changeMerchant(record published.MerchantRecord) {
	s.t.Helper()
	if _, err := kube.CoreV1().ConfigMaps(s.namespace).Update(s.t.Context(), s.configMap(record), metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) configMap(record published.MerchantRecord) *corev1.ConfigMap {
	s.t.Helper()
	configMap, err := published.EncodeMerchant(s.namespace, record)
	if err != nil {
		s.t.Fatal(err)
	}
	return configMap
}

// key publishes a key of the merchant and returns it in plaintext.
func (s *scene) key(name string, merchant published.MerchantRecord, change ...func(*published.KeyRecord)) string {
	s.t.Helper()
	uid := types.UID(s.namespace + "/" + name)
	key := s.newKey(published.ID(uid))
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
	secret, err := published.EncodeKey(s.namespace, record)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := kube.CoreV1().Secrets(s.namespace).Create(s.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return key.Reveal()
}

// newKey makes a key that is not published.
func (s *scene) newKey(keyID string) apikey.Key {
	s.t.Helper()
	key, err := apikey.New(keyID)
	if err != nil {
		s.t.Fatal(err)
	}
	s.issued = append(s.issued, key.Reveal())
	return key
}

// secretOf reads the published Secret of a key.
func (s *scene) secretOf(key string) *corev1.Secret {
	s.t.Helper()
	parsed, err := apikey.Parse(key)
	if err != nil {
		s.t.Fatal(err)
	}
	secret, err := kube.CoreV1().Secrets(s.namespace).Get(s.t.Context(), published.KeyName(parsed.ID()), metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

func (s *scene) updateSecret(secret *corev1.Secret) {
	s.t.Helper()
	if _, err := kube.CoreV1().Secrets(s.namespace).Update(s.t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}
