package directory

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clock "k8s.io/utils/clock/testing"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/kube"
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
	_ = f.keyInformer.Add(secretOf(t, record))
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

func secretOf(t testing.TB, record published.KeyRecord) *corev1.Secret {
	t.Helper()
	secret, err := published.EncodeKey(namespace, record)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func configMapOf(t testing.TB, record published.MerchantRecord) *corev1.ConfigMap {
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
