package endpoints

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clock "k8s.io/utils/clock/testing"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// fixture is an index whose informers the test calls as a reflector would.
type fixture struct {
	*Endpoints

	clock   *clock.FakePassiveClock
	log     *bytes.Buffer
	rotated *[]string
	changed *[]string
}

func newFixture() fixture {
	f := fixture{clock: clock.NewFakePassiveClock(now), log: &bytes.Buffer{}, rotated: &[]string{}, changed: &[]string{}}
	f.Endpoints = New(Options{
		Log:        slog.New(slog.NewTextHandler(f.log, nil)),
		Registerer: prometheus.NewRegistry(),
		Rotated: func(key published.KeyRecord, merchantName string) {
			*f.rotated = append(*f.rotated, key.Source.Name+" of "+merchantName)
		},
		Refused: func(url string) bool { return strings.HasPrefix(url, "http:") },
		Changed: func(merchantID string) { *f.changed = append(*f.changed, merchantID) },
		Now:     f.clock.Now,
	})
	return f
}

func merchant(webhook *v1alpha1.Webhook) *v1alpha1.Merchant {
	return &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "acme", UID: "acme-uid"},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "Acme",
			State:       v1alpha1.MerchantActive,
			Currency:    v1alpha1.DefaultCurrency,
			RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
			Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
			Webhook:     webhook,
		},
	}
}

var hook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}

func (f fixture) publish(t *testing.T, m *v1alpha1.Merchant) {
	t.Helper()
	f.publishRecord(t, published.NewMerchantRecord(m))
}

func (f fixture) publishRecord(t *testing.T, record published.MerchantRecord) {
	t.Helper()
	configMap, err := published.EncodeMerchant("credentials", record)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Informer("merchant").Update(configMap)
}

func (f fixture) sign(t *testing.T, record published.WebhookRecord) {
	t.Helper()
	secret, err := published.EncodeWebhook("credentials", record)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Informer("webhook").Update(secret)
}

func (f fixture) key(t *testing.T, name string, generation int64, cause v1alpha1.RotationCause) {
	t.Helper()
	record := published.KeyRecord{
		KeyID:        published.ID(types.UID(name)),
		MerchantID:   published.ID("acme-uid"),
		Source:       published.Source{Namespace: "shops", Name: name, UID: types.UID(name)},
		Generation:   generation,
		Revision:     generation,
		Current:      published.Current{Digest: apikey.NewDigest(name), CreatedAt: now},
		State:        v1alpha1.ApiKeyActive,
		LastRotation: published.RotationEvent{Time: now, Cause: cause},
	}
	secret, err := published.EncodeKey("credentials", record)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Informer("key").Update(secret)
}

func TestEndpoint_Published(t *testing.T) {
	f := newFixture()
	id := published.ID("acme-uid")
	if e := f.Endpoint(id); e.State != Unknown {
		t.Fatal("an endpoint of nobody")
	}
	f.publish(t, merchant(nil))
	if e := f.Endpoint(id); e.State != Published || e.Wants(v1alpha1.EventSessionCompleted) {
		t.Fatal("a merchant without a webhook is known, and wants nothing")
	}
	f.publish(t, merchant(hook))
	got := f.Endpoint(id)
	if got.State != Published || got.URL != hook.URL || got.MerchantName != "Acme" || got.UID != "acme-uid" ||
		got.Merchant != (types.NamespacedName{Namespace: "shops", Name: "acme"}) || len(got.Secrets) != 0 {
		t.Errorf("got %+v", got)
	}
	f.publish(t, merchant(nil))
	if e := f.Endpoint(id); e.URL != "" {
		t.Error("the endpoint outlived its webhook")
	}
}

// Sessions of a merchant that is not Active go on, and so do their events.
func TestEndpoint_NotActive(t *testing.T) {
	f := newFixture()
	for _, state := range []v1alpha1.MerchantState{v1alpha1.MerchantSuspended, v1alpha1.MerchantClosed} {
		m := merchant(hook)
		m.Spec.State = state
		f.publish(t, m)
		if e := f.Endpoint(published.ID("acme-uid")); e.State != Published || e.URL != hook.URL || !e.Wants(v1alpha1.EventSessionCompleted) {
			t.Errorf("%s: got %+v", state, e)
		}
	}
}

// A removed webhook has no target, and its events wait until the operator says that they are dropped, whatever the clock says.
func TestEndpoint_RemovedWebhook(t *testing.T) {
	f := newFixture()
	record := published.NewMerchantRecord(merchant(hook))
	record.Webhook = &published.Webhook{Webhook: v1alpha1.Webhook{Events: []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted}}, RemovedAt: now}
	f.publishRecord(t, record)
	f.clock.SetTime(now.Add(10 * published.WebhookGrace))
	removed := f.Endpoint(record.MerchantID)
	if removed.URL != "" || removed.Target != "" || removed.Wants(v1alpha1.EventSessionCompleted) || !removed.RemovedAt.Equal(now) {
		t.Errorf("got %+v", removed)
	}
	if !removed.Awaits(v1alpha1.EventSessionCompleted) || removed.Awaits(v1alpha1.EventSessionExpired) {
		t.Error("what it subscribed to waits, and nothing else")
	}
	record.Webhook = &published.Webhook{RemovedAt: now, Dropped: true}
	f.publishRecord(t, record)
	if f.Endpoint(record.MerchantID).Awaits(v1alpha1.EventSessionCompleted) {
		t.Error("an event waits for a webhook that the operator has given up")
	}
	if len(*f.changed) != 0 {
		t.Errorf("changed %v", *f.changed)
	}
}

// Both secrets sign for a day, then the newer one alone, whether or not the operator has tidied up.
func TestEndpoint_Secrets(t *testing.T) {
	f := newFixture()
	f.publish(t, merchant(hook))
	first := published.NewWebhookRecord(merchant(hook), now)
	second := first.Rotated("again", now)
	f.sign(t, second)

	secrets := func() []published.SigningSecret {
		e := f.Endpoint(published.ID("acme-uid"))
		return e.Secrets
	}
	if diff := cmp.Diff([]published.SigningSecret{second.Current.Secret, first.Current.Secret}, secrets()); diff != "" {
		t.Errorf("after a rotation: %s", diff)
	}
	f.clock.SetTime(now.Add(published.SigningOverlap))
	if diff := cmp.Diff([]published.SigningSecret{second.Current.Secret}, secrets()); diff != "" {
		t.Errorf("a day later: %s", diff)
	}
}

func TestWants(t *testing.T) {
	asked := Endpoint{URL: "https://shop.example", events: []v1alpha1.WebhookEvent{v1alpha1.EventSessionCreated, v1alpha1.EventSessionExpired}}
	for _, test := range []struct {
		endpoint Endpoint
		kind     v1alpha1.WebhookEvent
		want     bool
	}{
		{Endpoint{URL: "https://shop.example"}, v1alpha1.EventSessionCompleted, true},
		{Endpoint{URL: "https://shop.example"}, v1alpha1.EventKeyRotated, true},
		{Endpoint{URL: "https://shop.example"}, v1alpha1.EventSessionCreated, false},
		{asked, v1alpha1.EventSessionCreated, true},
		{asked, v1alpha1.EventSessionExpired, true},
		{asked, v1alpha1.EventSessionCompleted, false},
		{asked, v1alpha1.EventWebhookTest, true},
		{Endpoint{}, v1alpha1.EventWebhookTest, false},
	} {
		if got := test.endpoint.Wants(test.kind); got != test.want {
			t.Errorf("asked for %v, %s: %t", test.endpoint.events, test.kind, got)
		}
	}
}
