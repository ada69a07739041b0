package system

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// observable returns everything in which two answers 401 could differ.
func observable(a fixture.Answer) map[string]any {
	header := a.Header.Clone()
	header.Del("Date")
	header.Del("X-Request-Id") // of this request alone
	return map[string]any{"status": a.Status, "header": header, "body": string(a.Raw)}
}

// A caller cannot find out why its key gets 401.
func TestAuthenticate_SameAnswerForEveryReason(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	wrong := s.want(s.call(0, http.MethodGet, me, "mk_live_nobody", ""), http.StatusUnauthorized)
	same := func(cause string, got fixture.Answer) {
		t.Helper()
		if diff := cmp.Diff(observable(wrong), observable(got)); diff != "" {
			t.Errorf("%s differs from a wrong key (-wrong +got):\n%s", cause, diff)
		}
	}
	same("no key", s.call(0, http.MethodGet, me, "", ""))

	elsewhere := s.Merchant("elsewhere", func(m *v1alpha1.Merchant) { m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	_, foreign := s.ApiKey("foreign", elsewhere.Name)
	s.Change(elsewhere, func() { elsewhere.Spec.IPAllowlist = []v1alpha1.IPBlock{"127.0.0.0/8"} })
	s.eventuallyStatus(0, foreign, http.StatusOK)
	s.Change(elsewhere, func() { elsewhere.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} })
	s.eventuallyStatus(0, foreign, http.StatusUnauthorized)
	same("a foreign address", s.call(0, http.MethodGet, me, foreign, ""))

	s.Merchant("coffee")
	disabled, disabledKey := s.ApiKey("disabled", "coffee")
	deleted, deletedKey := s.ApiKey("deleted", "coffee")
	s.eventuallyStatus(0, disabledKey, http.StatusOK)
	s.eventuallyStatus(0, deletedKey, http.StatusOK)
	s.Change(disabled, func() { disabled.Spec.State = v1alpha1.ApiKeyDisabled })
	s.eventuallyStatus(0, disabledKey, http.StatusUnauthorized)
	same("a disabled key", s.call(0, http.MethodGet, me, disabledKey, ""))
	s.Delete(deleted)
	s.eventuallyStatus(0, deletedKey, http.StatusUnauthorized)
	same("a deleted key", s.call(0, http.MethodGet, me, deletedKey, ""))
}

func TestMerchant_SuspendedThenActive(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	merchant := s.Merchant("coffee")
	_, key := s.ApiKey("till", "coffee")
	s.eventuallyEverywhere(key, http.StatusOK)
	s.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantSuspended })
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, http.StatusForbidden)
		s.want(s.call(replica, http.MethodPost, sessions, key, `{"amountCents":100}`), http.StatusForbidden)
	}
	s.Change(merchant, func() { merchant.Spec.State = v1alpha1.MerchantActive })
	s.eventuallyEverywhere(key, http.StatusOK)
}

func TestMerchant_DeletedEndsItsKeys(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	merchant := s.Merchant("coffee")
	_, key := s.ApiKey("till", "coffee")
	s.eventuallyEverywhere(key, http.StatusOK)
	s.Delete(merchant)
	s.eventuallyEverywhere(key, http.StatusUnauthorized)
}

func TestRateLimit_SharedByReplicas(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	s.Merchant("coffee", func(m *v1alpha1.Merchant) { m.Spec.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 200} })
	_, key := s.ApiKey("till", "coffee")
	s.Eventually("a replica refuses", func() bool { return s.call(0, http.MethodGet, me, key, "").Status == http.StatusTooManyRequests })
	refused := s.call(1, http.MethodGet, me, key, "")
	if refused.Status == http.StatusOK { // one request was earned in between
		refused = s.call(1, http.MethodGet, me, key, "")
	}
	s.want(refused, http.StatusTooManyRequests)
	if refused.Header.Get("Retry-After") == "" || refused.Header.Get("RateLimit-Policy") == "" {
		t.Errorf("a 429 without Retry-After or RateLimit-Policy: %v", refused.Header)
	}
}

// TestRevoke_ReplicaWithFrozenWatch ends access in each way there is, while one
// replica gets nothing from the Kubernetes API: it learns of them through Redis.
func TestRevoke_ReplicaWithFrozenWatch(t *testing.T) {
	revocations := map[string]func(tenant, *v1alpha1.Merchant, *v1alpha1.ApiKey){
		"disabled": func(s tenant, _ *v1alpha1.Merchant, k *v1alpha1.ApiKey) {
			s.Change(k, func() { k.Spec.State = v1alpha1.ApiKeyDisabled })
		},
		"deleted":          func(s tenant, _ *v1alpha1.Merchant, k *v1alpha1.ApiKey) { s.Delete(k) },
		"merchant deleted": func(s tenant, m *v1alpha1.Merchant, _ *v1alpha1.ApiKey) { s.Delete(m) },
		"rotated by trigger, no overlap": func(s tenant, _ *v1alpha1.Merchant, k *v1alpha1.ApiKey) {
			s.Change(k, func() { k.Spec.Rotation.Trigger, k.Spec.Rotation.OverlapSeconds = "now", new(int32) })
		},
		"expired": func(s tenant, _ *v1alpha1.Merchant, k *v1alpha1.ApiKey) {
			s.Change(k, func() { k.Spec.ExpiresAt = new(metav1.NewTime(time.Now().Add(2 * time.Second))) })
		},
		"merchant re-created": func(s tenant, m *v1alpha1.Merchant, _ *v1alpha1.ApiKey) {
			s.Delete(m)
			s.Eventually("the merchant is gone", func() bool { return s.Gone(m) })
			s.Merchant(m.Name)
		},
	}
	for name, revoke := range revocations {
		t.Run(name, func(t *testing.T) {
			s := newTenant(t)
			merchant := s.Merchant("coffee")
			apiKey, key := s.ApiKey("till", "coffee")
			s.eventuallyEverywhere(key, http.StatusOK)
			frozen := len(shared.replicas) - 1
			shared.proxies[frozen].FreezeWatches()
			t.Cleanup(shared.proxies[frozen].ThawWatches)
			revoke(s, merchant, apiKey)
			for replica := range shared.replicas {
				s.Eventually(fmt.Sprintf("replica %d refuses the key", replica), func() bool {
					return s.try(replica, key) == http.StatusUnauthorized
				})
			}
		})
	}
}

func TestApiKey_DisabledThenActive(t *testing.T) {
	s := newTenant(t)
	s.Merchant("coffee")
	apiKey, key := s.ApiKey("till", "coffee")
	for range 3 {
		s.Change(apiKey, func() { apiKey.Spec.State = v1alpha1.ApiKeyDisabled })
		s.eventuallyEverywhere(key, http.StatusUnauthorized)
		s.Change(apiKey, func() { apiKey.Spec.State = v1alpha1.ApiKeyActive })
		s.eventuallyEverywhere(key, http.StatusOK)
	}
}

// The rollout of an allowlist: it reports whom it would refuse, then refuses them, and says no more of those that it is changed for.
func TestAllowlist_ReportThenEnforce(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	merchant := s.Merchant("coffee", func(m *v1alpha1.Merchant) {
		m.Spec.IPAllowlist, m.Spec.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistReport
	})
	_, key := s.ApiKey("till", "coffee")
	s.eventuallyEverywhere(key, http.StatusOK)
	const here = "127.0.0.0/24"
	eventuallyReported := func(desc string, want bool) {
		t.Helper()
		var found v1alpha1.Merchant
		s.Eventually(desc, func() bool {
			if err := s.Kube.Get(t.Context(), client.ObjectKeyFromObject(merchant), &found); err != nil {
				t.Fatal(err)
			}
			return (found.Status.Allowlist != nil) == want
		})
		if want {
			if all := found.Status.Allowlist.Refused; len(all) != 1 || all[0].Block != here || all[0].Requests < 1 || time.Since(all[0].LastSeen.Time) > time.Hour {
				t.Errorf("%s: %+v", desc, all)
			}
		}
	}
	eventuallyReported("the address of this test is reported", true)
	for replica := range shared.replicas {
		s.charge(replica, key) // and not refused
	}

	s.Change(merchant, func() { merchant.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "127.0.0.1"} })
	eventuallyReported("it is on the list", false)
	s.Change(merchant, func() {
		merchant.Spec.IPAllowlist, merchant.Spec.IPAllowlistMode = []v1alpha1.IPBlock{"203.0.113.0/24"}, v1alpha1.IPAllowlistEnforce
	})
	s.eventuallyEverywhere(key, http.StatusUnauthorized)
	eventuallyReported("it is refused, and reported", true)
}

// The API writes it to Redis, a dispatcher publishes it, and the operator shows it.
func TestApiKey_LastUsedTime(t *testing.T) {
	s := newTenant(t)
	key, plaintext := s.till()
	before := time.Now()
	s.charge(0, plaintext)
	s.Eventually("the ApiKey says when the key was used", func() bool {
		if err := s.Kube.Get(t.Context(), client.ObjectKeyFromObject(key), key); err != nil {
			t.Fatal(err)
		}
		return key.Status.LastUsedTime != nil
	})
	if used := key.Status.LastUsedTime.Time; used.Before(before.Add(-time.Minute)) || used.After(time.Now().Add(time.Second)) {
		t.Errorf("used at %s, want about %s", used, before)
	}
}

// A till keeps its key when its ApiKey moves to another cluster, with a Kubernetes API and a Redis of
// its own: the digest out of the old record goes into spec.keyDigest of the new ApiKey.
func TestApiKey_MovedByDigest(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	apiKey, key := s.till()
	digest := s.record(apiKey).Current.Digest.Hex()

	next, err := install(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	})
	get := func(key string) fixture.Answer { return s.send(next.replicas[0].Public, http.MethodGet, me, key, "") }
	s.want(get(key), http.StatusUnauthorized)
	moved := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "till"},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "coffee"}, KeyDigest: digest},
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}},
		&v1alpha1.Merchant{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "coffee"}, Spec: v1alpha1.MerchantSpec{DisplayName: "Acme coffee"},
		},
		moved,
	} {
		if err := next.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	s.Eventually("the new cluster accepts the key", func() bool { return get(key).Status == http.StatusOK })
	charge := func(key string) fixture.Answer {
		return s.send(next.replicas[0].Public, http.MethodPost, sessions, key, `{"amountCents":1250}`)
	}
	s.want(charge(key), http.StatusCreated)
	s.want(s.call(0, http.MethodGet, me, key, ""), http.StatusOK) // the old cluster goes on until it is switched off

	// Nobody else can move the same key.
	rival := moved.DeepCopy()
	rival.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, Name: "rival"}
	if err := next.Client.Create(t.Context(), rival); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the second ApiKey of the digest is Stalled", func() bool {
		if err := next.Client.Get(context.Background(), client.ObjectKeyFromObject(rival), rival); err != nil {
			t.Fatal(err)
		}
		stalled := meta.FindStatusCondition(rival.Status.Conditions, v1alpha1.StalledCondition)
		return stalled != nil && stalled.Reason == v1alpha1.ReasonKeyDigestClaimed
	})

	rotated := s.want(s.send(next.replicas[0].Public, http.MethodPost, rotate, key, ""), http.StatusOK).Body["fullKey"].(string)
	s.want(get(key), http.StatusUnauthorized)
	s.want(charge(rotated), http.StatusCreated)
}
