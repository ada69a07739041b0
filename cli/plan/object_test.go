package plan

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func at(after time.Duration) metav1.Time { return metav1.NewTime(now.Add(after)) }

// key is an ApiKey as the operator reports it, three generations old and in use.
func key(change ...func(*v1alpha1.ApiKey)) *v1alpha1.ApiKey {
	k := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till", Generation: 1},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "acme"}, State: v1alpha1.ApiKeyActive, Rotation: v1alpha1.Rotation{OverlapSeconds: new(int32(3600))}},
		Status: v1alpha1.ApiKeyStatus{
			ObservedGeneration: 1, Prefix: "mk_live_2yylmkzckvhj_0123", KeyGeneration: 3, LastUsedTime: new(at(-time.Hour)),
			LastRotation: &v1alpha1.RotationStatus{Time: at(-10 * time.Hour)},
			Conditions:   []metav1.Condition{{Type: v1alpha1.DeliveredCondition, Status: metav1.ConditionTrue}, {Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue}},
		},
	}
	for _, c := range change {
		c(k)
	}
	return k
}

func acme(change ...func(*v1alpha1.Merchant)) *v1alpha1.Merchant {
	m := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "acme", Generation: 1},
		Spec: v1alpha1.MerchantSpec{
			State: v1alpha1.MerchantActive, IPAllowlistMode: v1alpha1.IPAllowlistEnforce, RateLimit: v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
			Currency: "USD", Sessions: v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn}, Webhook: &v1alpha1.Webhook{URL: "https://shop.example/hooks"},
		},
		Status: v1alpha1.MerchantStatus{ObservedGeneration: 1, Webhook: &v1alpha1.WebhookStatus{Pending: 7}},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

// lines are the text of a plan without its summary.
func lines(t *testing.T, s State) string {
	t.Helper()
	s.Now = now
	var text strings.Builder
	if err := NewReport(s, 0).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	all := strings.TrimSpace(text.String())
	return all[:max(strings.LastIndex(all, "\n"), 0)]
}

func trigger(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" }

// previous are old keys with these times left.
func previous(left ...time.Duration) func(*v1alpha1.ApiKey) {
	return func(k *v1alpha1.ApiKey) {
		for _, l := range left {
			k.Status.PreviousKeys = append(k.Status.PreviousKeys, v1alpha1.PreviousKey{ValidUntil: at(l)})
		}
	}
}

// oldKeyInUse is what the operator says of the first old key.
func oldKeyInUse(k *v1alpha1.ApiKey, status metav1.ConditionStatus, usedAgo time.Duration) {
	k.Status.PreviousKeys[0].LastUsedTime = new(at(-usedAgo))
	k.Status.Conditions = append(k.Status.Conditions, metav1.Condition{Type: v1alpha1.OldKeyInUseCondition, Status: status})
}

// What only a status can show. The suite of cli compares the rest with what a cluster then does.
func TestReport_ApiKey(t *testing.T) {
	const lastUsed = "Last used at 2026-11-23T11:00:00Z."
	for name, test := range map[string]struct {
		before func(*v1alpha1.ApiKey)
		after  func(*v1alpha1.ApiKey)
		want   []string
		not    string
	}{
		"a rotation says which key, and its last use": {
			after: trigger,
			want:  []string{"spec.rotation.trigger", "ENDS     spec.rotation.trigger changes: The key mk_live_2yylmkzckvhj_0123 is replaced and gets 401 1h after that. The new key is delivered in Secret till-key. " + lastUsed},
		},
		"no use is known": {
			before: func(k *v1alpha1.ApiKey) { k.Status.LastUsedTime = nil }, after: trigger, want: []string{"No use is known."}, not: "Last used",
		},
		"a prefix that a tenant wrote": {
			before: func(k *v1alpha1.ApiKey) { k.Status.Prefix = "[click](https://evil.example)" }, after: trigger, want: []string{"The key is replaced"}, not: "evil",
		},
		"overlaps that end earlier": {
			before: previous(5*time.Hour, 2*time.Hour, 30*time.Minute), after: trigger,
			want: []string{"The overlap of 2 old keys ends 1h after the rotation at the latest; now it ends at 2026-11-23T17:00:00Z.", "No use is known. It is unknown whether an old key is still used."},
		},
		"an overlap that is cut while the old key is used": {
			before: func(k *v1alpha1.ApiKey) {
				previous(5 * time.Hour)(k)
				oldKeyInUse(k, metav1.ConditionTrue, 5*time.Minute)
			}, after: trigger,
			want: []string{"The overlap of 1 old key ends", "Last used at 2026-11-23T11:55:00Z. It is still in use."},
		},
		"an overlap that is cut while the old key is quiet": {
			before: func(k *v1alpha1.ApiKey) {
				previous(5 * time.Hour)(k)
				oldKeyInUse(k, metav1.ConditionFalse, 3*time.Hour)
			}, after: trigger,
			want: []string{"The overlap of 1 old key ends", "Last used at 2026-11-23T09:00:00Z. No old key was used within two hours."},
		},
		"an overlap that is cut without evidence": {
			before: func(k *v1alpha1.ApiKey) {
				previous(5 * time.Hour)(k)
				oldKeyInUse(k, metav1.ConditionUnknown, 3*time.Hour)
			}, after: trigger,
			want: []string{"The overlap of 1 old key ends", "Last used at 2026-11-23T09:00:00Z. It is unknown whether an old key is still used."},
		},
		"a key that is disabled while its old one is used": {
			before: func(k *v1alpha1.ApiKey) {
				previous(5 * time.Hour)(k)
				oldKeyInUse(k, metav1.ConditionTrue, 5*time.Minute)
			},
			after: func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled }, want: []string{"Last used at 2026-11-23T11:55:00Z."},
		},
		"overlaps that end before the new one": {before: previous(30*time.Minute, -time.Minute), after: trigger, not: "The overlap"},
		"overlaps without a new one": {
			before: previous(5*time.Hour, -time.Minute), after: func(k *v1alpha1.ApiKey) { trigger(k); k.Spec.Rotation.OverlapSeconds = new(int32(0)) },
			want: []string{"gets 401 at once, with all older keys", "The overlap of 1 old key ends"},
		},
		"the ninth old key": {
			before: previous(10*time.Minute, 9*time.Minute, 8*time.Minute, 7*time.Minute, 6*time.Minute, 5*time.Minute, 4*time.Minute, 3*time.Minute), after: trigger, want: []string{"The overlap of 1 old key ends"},
		},
		"a schedule that has elapsed":  {after: func(k *v1alpha1.ApiKey) { k.Spec.Rotation.EverySeconds = new(int32(36000)) }, want: []string{"ENDS     spec.rotation.everySeconds has elapsed"}},
		"a schedule that nearly has":   {after: func(k *v1alpha1.ApiKey) { k.Spec.Rotation.EverySeconds = new(int32(39000)) }, want: []string{"MAY END  spec.rotation.everySeconds elapses by 2026-11-23T12:50:00Z"}},
		"a trigger that was handled":   {before: func(k *v1alpha1.ApiKey) { k.Status.ObservedTrigger = "b" }, after: trigger, not: "replaced"},
		"a trigger of a digest":        {before: func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = "00ff" }, after: func(k *v1alpha1.ApiKey) { k.Spec.KeyDigest = "00ff"; trigger(k) }, not: "replaced"},
		"a status of an older spec":    {before: func(k *v1alpha1.ApiKey) { k.Generation = 2 }, after: trigger, want: []string{"MAY END  The operator has not handled the present spec yet"}},
		"a rotation that waits":        {before: func(k *v1alpha1.ApiKey) { k.Status.Conditions[1].Reason = v1alpha1.ReasonRotationDeferred }, after: trigger, want: []string{"not ready (RotationDeferred)"}},
		"a reason that a tenant wrote": {before: func(k *v1alpha1.ApiKey) { k.Status.Conditions[1].Reason = "Evil" }, after: trigger, not: "Evil"},
		"a retention that is over":     {after: func(k *v1alpha1.ApiKey) { k.Spec.Delivery = &v1alpha1.Delivery{RetainSeconds: new(int32(3600))} }, want: []string{"Secret till-key is deleted by spec.delivery.retainSeconds at 2026-11-23T03:00:00Z"}},
		"an expiry instead of a later": {before: func(k *v1alpha1.ApiKey) { k.Spec.ExpiresAt = new(at(9 * time.Hour)) }, after: func(k *v1alpha1.ApiKey) { k.Spec.ExpiresAt = new(at(time.Hour)) }, want: []string{"401 at 2026-11-23T13:00:00Z instead of at 2026-11-23T21:00:00Z. " + lastUsed}},
		"a new owner": {
			before: func(k *v1alpha1.ApiKey) {
				k.OwnerReferences = []metav1.OwnerReference{{Kind: "ConfigMap", Name: "till", UID: "old"}}
			},
			after: func(k *v1alpha1.ApiKey) {
				k.OwnerReferences = []metav1.OwnerReference{{Kind: "ConfigMap", Name: "till", UID: "old"}, {Kind: "Deployment", Name: "shop", UID: "new"}}
			},
			want: []string{"MAY END  metadata.ownerReferences has Deployment/shop: Kubernetes deletes this object when they end, or now if none of them exists with its uid."},
			not:  "ConfigMap/till",
		},
		"an owner that it has": {
			before: func(k *v1alpha1.ApiKey) {
				k.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "shop", UID: "old"}}
			},
			after: func(k *v1alpha1.ApiKey) {
				k.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "shop", UID: "old"}}
			},
			not: "MAY END",
		},
		"an object that is being deleted": {before: func(k *v1alpha1.ApiKey) { k.DeletionTimestamp = new(at(-time.Minute)) }, want: []string{"ENDS     This ApiKey is being deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := key(), key()
			if test.before != nil {
				test.before(before)
			}
			if test.after != nil {
				test.after(after)
			}
			got := lines(t, State{
				Merchants: []Object[v1alpha1.Merchant]{{Kind: "Merchant", Namespace: "shops", Name: "acme", Before: acme(), After: acme()}},
				ApiKeys:   []Object[v1alpha1.ApiKey]{{Kind: "ApiKey", Namespace: "shops", Name: "till", Source: "till.yaml", Before: before, After: after}},
			})
			expect(t, got, test.want, test.not)
		})
	}
}

func expect(t *testing.T, got string, want []string, not string) {
	t.Helper()
	for _, words := range want {
		if !strings.Contains(got, words) {
			t.Errorf("no %q in\n%s", words, got)
		}
	}
	if not != "" && strings.Contains(got, not) {
		t.Errorf("%q is in\n%s", not, got)
	}
}

func TestReport_Merchant(t *testing.T) {
	report := func(m *v1alpha1.Merchant) { m.Spec.IPAllowlistMode = v1alpha1.IPAllowlistReport }
	office := func(m *v1alpha1.Merchant) { m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/48"} }
	for name, test := range map[string]struct {
		before, after func(*v1alpha1.Merchant)
		deleted       bool
		want          []string
		not           string
	}{
		"a deletion": {
			deleted: true, want: []string{"The keys of till get 401 permanently", "Last used at 2026-11-23T11:00:00Z.", "7 events that wait are dropped.", "Set the state to Closed first, and delete the Merchant 15m later."},
		},
		"a deletion of a closed Merchant": {before: func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantClosed }, deleted: true, want: []string{"MAY END  Sessions that are still open end"}, not: "first"},
		"suspended":                       {after: func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended }, want: []string{"ENDS     All keys of this Merchant get 403: till.", "Last used at 2026-11-23T11:00:00Z."}},
		"closed after it was suspended": {
			before: func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended }, after: func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantClosed }, want: []string{"note"}, not: "ENDS",
		},
		"a new allowlist":              {after: office, want: []string{"MAY END  Keys get 401 from addresses that are accepted now.", "Roll it out with ipAllowlistMode Report first."}},
		"a new allowlist that reports": {after: func(m *v1alpha1.Merchant) { office(m); report(m) }, not: "MAY"},
		"IPv6 leaves the list":         {before: office, after: func(m *v1alpha1.Merchant) { m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"} }, want: []string{"MAY END"}},
		"IPv6 in two halves": {before: office, after: func(m *v1alpha1.Merchant) {
			m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/49", "2001:db8:0:8000::/49"}
		}, not: "END"},
		"any address, as two lists": {after: func(m *v1alpha1.Merchant) {
			m.Spec.IPAllowlist = []v1alpha1.IPBlock{"0.0.0.0/1", "128.0.0.0/1", "::/0"}
		}, not: "END"},
		"enforced, and status knows who is out": {
			before: func(m *v1alpha1.Merchant) {
				office(m)
				report(m)
				m.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{{Block: "198.51.100.0/24"}, {Block: "203.0.113.0/24"}, {Block: "[x](y)"}}}
			},
			after: office, want: []string{"these stay out: 198.51.100.0/24."}, not: "Report first",
		},
		"enforced, and nobody was out": {before: func(m *v1alpha1.Merchant) { office(m); report(m) }, after: office, want: []string{"status.allowlist has no such address of the last day."}, not: "Report first"},
		"a lower limit":                {after: func(m *v1alpha1.Merchant) { m.Spec.RateLimit.RequestsPerSecond = 5 }, want: []string{"Requests above 5 a second, or above 100 at once, get 429; now that is 50 and 100."}},
		"a higher limit":               {after: func(m *v1alpha1.Merchant) { m.Spec.RateLimit.Burst = 500 }, not: "END"},
		"another currency":             {after: func(m *v1alpha1.Merchant) { m.Spec.Currency = "JPY" }, want: []string{"note     Amounts of new sessions are in JPY instead of USD."}},
		"mismatches rejected":          {after: func(m *v1alpha1.Merchant) { m.Spec.Sessions.IdempotencyMismatch = v1alpha1.IdempotencyMismatchReject }, want: []string{"MAY END  A reused Idempotency-Key"}},
		"fewer events": {after: func(m *v1alpha1.Merchant) {
			m.Spec.Webhook.Events = []v1alpha1.WebhookEvent{v1alpha1.EventSessionCompleted}
		}, want: []string{"ENDS     Events of these types are not sent any more: session.failed, "}, not: "session.created"},
		"no webhook":                 {after: func(m *v1alpha1.Merchant) { m.Spec.Webhook = nil }, want: []string{"ENDS     No event is sent any more, and Secret acme-webhook is deleted. Events wait 24 hours for another webhook. 7 events that wait are among them."}},
		"a new signing secret":       {after: func(m *v1alpha1.Merchant) { m.Spec.Webhook.RotationTrigger = "b" }, want: []string{"ENDS     The signing secret is replaced"}},
		"another name of its Secret": {after: func(m *v1alpha1.Merchant) { m.Spec.Webhook.SecretName = "other" }, want: []string{"Secret acme-webhook is deleted"}},
		"a URL with a token":         {after: func(m *v1alpha1.Merchant) { m.Spec.Webhook.URL = "https://shop.example/token" }, want: []string{"spec.webhook.url", "7 events that wait are sent there too."}, not: "token"},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := acme(), acme()
			if test.before != nil {
				test.before(before)
			}
			if test.after != nil {
				test.after(after)
			}
			merchant := Object[v1alpha1.Merchant]{Kind: "Merchant", Namespace: "shops", Name: "acme", Source: "acme.yaml", Before: before, After: after}
			if test.deleted {
				merchant.Source, merchant.PrunedBy, merchant.After = "", "Flux (Kustomization flux-system/shops)", nil
			}
			got := lines(t, State{
				Merchants: []Object[v1alpha1.Merchant]{merchant},
				ApiKeys:   []Object[v1alpha1.ApiKey]{{Kind: "ApiKey", Namespace: "shops", Name: "till", Before: key(), After: key()}},
			})
			expect(t, got, test.want, test.not)
		})
	}
}
