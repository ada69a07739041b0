package endpoints

import (
	"bytes"
	"log/slog"
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

// scene is an index whose informers the test calls as a reflector would.
type scene struct {
	*Endpoints

	clock *clock.FakePassiveClock
	log   *bytes.Buffer
	told  *[]string
}

func newScene() scene {
	s := scene{clock: clock.NewFakePassiveClock(now), log: &bytes.Buffer{}, told: &[]string{}}
	s.Endpoints = New(Options{
		Log:        slog.New(slog.NewTextHandler(s.log, nil)),
		Registerer: prometheus.NewRegistry(),
		Rotated: func(key published.KeyRecord, merchantName string) {
			*s.told = append(*s.told, key.Source.Name+" of "+merchantName)
		},
		Now: s.clock.Now,
	})
	return s
}

func merchant(webhook *v1alpha1.Webhook) *v1alpha1.Merchant {
	return &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "acme", UID: "acme-uid"},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "Acme",
			State:       v1alpha1.MerchantActive,
			RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
			Sessions:    v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
			Webhook:     webhook,
		},
	}
}

var hook = &v1alpha1.Webhook{URL: "https://shop.example/hooks"}

func (s scene) publish(t *testing.T, m *v1alpha1.Merchant) {
	t.Helper()
	configMap, err := published.EncodeMerchant("credentials", published.NewMerchantRecord(m))
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Informer("merchant").Update(configMap)
}

func (s scene) sign(t *testing.T, record published.WebhookRecord) {
	t.Helper()
	secret, err := published.EncodeWebhook("credentials", record)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Informer("webhook").Update(secret)
}

func (s scene) key(t *testing.T, name string, generation int64) {
	t.Helper()
	record := published.KeyRecord{
		KeyID:        published.ID(types.UID(name)),
		MerchantID:   published.ID("acme-uid"),
		Source:       published.Source{Namespace: "shops", Name: name, UID: types.UID(name)},
		Generation:   generation,
		Revision:     generation,
		Current:      published.Current{Digest: apikey.DigestOf(name), CreatedAt: now},
		State:        v1alpha1.ApiKeyActive,
		LastRotation: published.RotationEvent{Time: now, Cause: v1alpha1.RotationTrigger},
	}
	secret, err := published.EncodeKey("credentials", record)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Informer("key").Update(secret)
}

func TestEndpointOfAMerchant(t *testing.T) {
	s := newScene()
	id := published.ID("acme-uid")
	if e := s.Endpoint(id); e.State != Unknown {
		t.Fatal("an endpoint of nobody")
	}
	s.publish(t, merchant(nil))
	if e := s.Endpoint(id); e.State != Published || e.Wants(v1alpha1.EventSessionCompleted) || len(s.All()) != 0 {
		t.Fatal("a merchant without a webhook is known, and wants nothing")
	}
	s.publish(t, merchant(hook))
	got := s.Endpoint(id)
	if got.State != Published || got.URL != hook.URL || got.MerchantName != "Acme" || got.UID != "acme-uid" ||
		got.Merchant != (types.NamespacedName{Namespace: "shops", Name: "acme"}) || len(got.Secrets) != 0 {
		t.Errorf("got %+v", got)
	}
	if all := s.All(); len(all) != 1 || all[0].MerchantID != id {
		t.Errorf("all: %+v", all)
	}
	s.publish(t, merchant(nil))
	if e := s.Endpoint(id); e.URL != "" || len(s.All()) != 0 {
		t.Error("the endpoint outlived its webhook")
	}
}

// Both secrets sign for a day, then the newer one alone, whether or not the operator has tidied up.
func TestSecretsSignInTheirTime(t *testing.T) {
	s := newScene()
	s.publish(t, merchant(hook))
	first := published.NewWebhookRecord(merchant(hook), now)
	second := first.Rotated("again", now)
	s.sign(t, second)

	secrets := func() []published.SigningSecret {
		e := s.Endpoint(published.ID("acme-uid"))
		return e.Secrets
	}
	if diff := cmp.Diff([]published.SigningSecret{second.Current.Secret, first.Current.Secret}, secrets()); diff != "" {
		t.Errorf("after a rotation: %s", diff)
	}
	s.clock.SetTime(now.Add(published.SigningOverlap))
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
	} {
		if got := test.endpoint.Wants(test.kind); got != test.want {
			t.Errorf("asked for %v, %s: %t", test.endpoint.events, test.kind, got)
		}
	}
}

func TestTargetChangesWithWhatResumesAnEndpoint(t *testing.T) {
	seen := map[string]string{}
	for desc, webhook := range map[string]v1alpha1.Webhook{
		"as it is":    *hook,
		"another URL": {URL: "https://shop.example/other"},
		"resumed":     {URL: hook.URL, ResumeTrigger: "1"},
	} {
		if other, taken := seen[target(webhook)]; taken {
			t.Errorf("%s is the target of %s", desc, other)
		}
		seen[target(webhook)] = desc
	}
	if target(v1alpha1.Webhook{URL: hook.URL, RotationTrigger: "1"}) != target(*hook) {
		t.Error("another signing secret is no other target")
	}
}

func TestRotatedKeysAreToldOfWithTheirMerchant(t *testing.T) {
	s := newScene()
	s.key(t, "early", 2) // before its merchant, as the first lists may come in any order
	s.key(t, "gone", 2)
	_ = s.Informer("key").Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: published.KeyName(published.ID("gone"))}})
	if len(*s.told) != 0 {
		t.Fatalf("told %v before the merchant was known", *s.told)
	}
	s.publish(t, merchant(nil))
	s.publish(t, merchant(nil))
	s.key(t, "first", 1) // issued, not rotated
	s.key(t, "late", 3)
	if diff := cmp.Diff([]string{"early of Acme", "late of Acme"}, *s.told); diff != "" {
		t.Error(diff)
	}
}
