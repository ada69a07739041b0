package directory

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestIdentifyTellsAllOfAPrincipal(t *testing.T) {
	f := newFixture()
	expiry := now.Add(time.Hour)
	key, record := issue(t, "till", "acme", func(r *published.KeyRecord) {
		r.Generation, r.ExpiresAt = 3, &expiry
		r.Permissions, r.IPAllowlist = []v1alpha1.Permission{"read", "of a later version"}, []v1alpha1.IPBlock{"203.0.113.7"}
		r.LastRotation.Time = now.Add(-time.Minute)
	})
	secret := secretOf(t, record)
	secret.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	_ = f.keyInformer.Add(secret)
	_ = f.merchantInformer.Add(configMapOf(t, merchantRecord("acme", func(r *published.MerchantRecord) {
		r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::7"}
		r.Page = &v1alpha1.PageSettings{AccentColor: "#0b6e4f", ReturnURL: "https://shop.example/thanks"}
	})))

	got, err := f.Identify(key, now)
	if err != nil {
		t.Fatal(err)
	}
	comparePrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	want := Principal{
		KeyID: record.KeyID, Generation: 3, Order: record.Order(), Digest: apikey.DigestOf(key), Accepted: true, Until: expiry, Live: true, Current: true, Prefix: record.Current.Prefix,
		CreatedAt: now.Add(-time.Hour), RotatedAt: now.Add(-time.Minute), ExpiresAt: &expiry,
		Permissions: NewPermissions([]v1alpha1.Permission{"read"}), Allowlist: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32")},
		Merchant: &Merchant{
			ID: published.ID("acme"), Namespace: "shops", Name: "acme", DisplayName: "Acme", State: v1alpha1.MerchantActive, Currency: "EUR", TimeZone: "UTC",
			Allowlist: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::7/128")},
			RateLimit: v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
			Sessions:  v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
			Page:      v1alpha1.PageSettings{AccentColor: "#0b6e4f", ReturnURL: "https://shop.example/thanks"},
		},
	}
	if diff := cmp.Diff(want.Merchant, f.Merchant(published.ID("acme")), comparePrefix); diff != "" {
		t.Errorf("merchant by id (-want +got):\n%s", diff)
	}
	if other := f.Merchant(published.ID("other")); other != nil {
		t.Errorf("an unknown merchant: %+v", other)
	}
	if diff := cmp.Diff(want, got, comparePrefix); diff != "" {
		t.Errorf("principal (-want +got):\n%s", diff)
	}
}

func TestIdentify(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(configMapOf(t, merchantRecord("acme")))
	past, future := now.Add(-time.Second), now.Add(time.Second)
	elsewhere, overlapping, ended := strings.Repeat("f", 40), strings.Repeat("o", 40), strings.Repeat("e", 40)

	current, record := f.publish(t, "current", "acme")
	rotated, _ := f.publish(t, "rotated", "acme", func(r *published.KeyRecord) {
		r.Previous = []published.Previous{
			{Digest: apikey.DigestOf(overlapping), ValidUntil: future},
			{Digest: apikey.DigestOf(ended), ValidUntil: now},
		}
	})
	expired, _ := f.publish(t, "expired", "acme", func(r *published.KeyRecord) { r.ExpiresAt = &now })
	expiring, _ := f.publish(t, "expiring", "acme", func(r *published.KeyRecord) { r.ExpiresAt = &future })
	disabled, _ := f.publish(t, "disabled", "acme", func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	orphan, _ := f.publish(t, "orphan", "nobody")
	f.publish(t, "foreign", "acme", func(r *published.KeyRecord) {
		r.Current = published.Current{Digest: apikey.DigestOf(elsewhere), CreatedAt: past}
	})
	unknown, _ := issue(t, "unknown", "acme")
	another, expiredReissue := reissue(t, "current"), reissue(t, "expired")

	tests := map[string]struct {
		presented string
		live      bool
		ended     bool // by the clock of this replica, which does not decide
		prefix    string
		err       error
	}{
		"the current key":                           {presented: current, live: true, prefix: current[:25]},
		"a fresh key of a known key id":             {presented: another, prefix: another[:25]},
		"the current key after a rotation":          {presented: rotated, live: true, prefix: rotated[:25]},
		"a previous key in its overlap":             {presented: overlapping, live: true},
		"a previous key at the end of its overlap":  {presented: ended, ended: true},
		"a key before its end":                      {presented: expiring, live: true, prefix: expiring[:25]},
		"a key at its end":                          {presented: expired, ended: true, prefix: expired[:25], err: ErrExpired},
		"a disabled key":                            {presented: disabled, err: ErrDisabled},
		"a key whose merchant is not published":     {presented: orphan, err: ErrMerchantMissing},
		"a key made elsewhere":                      {presented: elsewhere, live: true},
		"a key that was never published":            {presented: unknown, err: ErrUnknown},
		"a known key id with a mistyped secret":     {presented: current[:30] + "x" + current[31:58] + "_", err: ErrUnknown},
		"something else":                            {presented: "hunter2", err: ErrUnknown},
		"nothing":                                   {presented: "", err: ErrUnknown},
		"the digest is not the key":                 {presented: apikey.DigestOf(current).Hex(), err: ErrUnknown},
		"the key id alone":                          {presented: record.KeyID, err: ErrUnknown},
		"the name of the published object":          {presented: published.KeyName(record.KeyID), err: ErrUnknown},
		"a key of the expired one's key id is dead": {presented: expiredReissue, prefix: expiredReissue[:25], err: ErrExpired},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := f.Identify(test.presented, now)
			if !errors.Is(err, test.err) || (err != nil && test.err == nil) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if got.Accepted != (test.live || test.ended) || got.Accepted && (got.Until.IsZero() || now.Before(got.Until)) != test.live {
				t.Errorf("accepted %v until %s", got.Accepted, got.Until)
			}
			if got.Live != test.live || got.Prefix != test.prefix {
				t.Errorf("live %v, prefix %q, want %v, %q", got.Live, got.Prefix, test.live, test.prefix)
			}
		})
	}
}
