package directory

import (
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestIdentify_Principal(t *testing.T) {
	f := newFixture()
	expiry := now.Add(time.Hour)
	key, record := issue(t, "till", "acme", func(r *published.KeyRecord) {
		r.Generation, r.ExpiresAt = 3, &expiry
		r.Permissions, r.IPAllowlist = []v1alpha1.Permission{"read", "of a later version"}, []v1alpha1.IPBlock{"203.0.113.7"}
		r.LastRotation.Time = now.Add(-time.Minute)
	})
	secret := newSecret(t, record)
	secret.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	_ = f.keyInformer.Add(secret)
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme", func(r *published.MerchantRecord) {
		r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::7"}
		r.Page = &v1alpha1.PageSettings{AccentColor: "#0b6e4f", ReturnURL: "https://shop.example/thanks"}
	})))

	got, err := f.Identify(key, now)
	if err != nil {
		t.Fatal(err)
	}
	comparePrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	want := Principal{
		KeyID: record.KeyID, Generation: 3, Order: record.Order(), Digest: apikey.NewDigest(key), Accepted: true, Until: expiry, Live: true, Current: true, Prefix: record.Current.Prefix,
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
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	past, future := now.Add(-time.Second), now.Add(time.Second)
	elsewhere, overlapping, ended := strings.Repeat("f", 40), strings.Repeat("o", 40), strings.Repeat("e", 40)

	current, record := f.publish(t, "current", "acme")
	rotated, _ := f.publish(t, "rotated", "acme", func(r *published.KeyRecord) {
		r.Previous = []published.Previous{
			{Digest: apikey.NewDigest(overlapping), ValidUntil: future},
			{Digest: apikey.NewDigest(ended), ValidUntil: now},
		}
	})
	expired, _ := f.publish(t, "expired", "acme", func(r *published.KeyRecord) { r.ExpiresAt = &now })
	expiring, _ := f.publish(t, "expiring", "acme", func(r *published.KeyRecord) { r.ExpiresAt = &future })
	disabled, _ := f.publish(t, "disabled", "acme", func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	orphan, _ := f.publish(t, "orphan", "nobody")
	f.publish(t, "foreign", "acme", func(r *published.KeyRecord) {
		r.Current = published.Current{Digest: apikey.NewDigest(elsewhere), CreatedAt: past}
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
		"the digest is not the key":                 {presented: apikey.NewDigest(current).Hex(), err: ErrUnknown},
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

// testKey makes a test key of the ApiKey with the uid test, and its record.
func testKey(t *testing.T) (plaintext string, record published.KeyRecord) {
	t.Helper()
	_, record = issue(t, "test", "acme", func(r *published.KeyRecord) { r.Test = true })
	key, err := record.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	record.Current.Digest, record.Current.Prefix = key.Digest(), key.Prefix()
	return key.Reveal(), record
}

func TestIdentify_TestMode(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	live, _ := f.publish(t, "till", "acme")
	test, record := testKey(t)
	_ = f.keyInformer.Add(newSecret(t, record))
	if !apikey.IsTest(test) || apikey.IsTest(live) {
		t.Fatalf("labels: %.8s, %.8s", test, live)
	}
	for presented, isTest := range map[string]bool{live: false, test: true} {
		if got, err := f.Identify(presented, now); err != nil || got.TestMode != isTest || !got.Live {
			t.Errorf("%.8s: %+v, %v", presented, got, err)
		}
	}
	record.State, record.Revision = v1alpha1.ApiKeyDisabled, 2
	_ = f.keyInformer.Update(newSecret(t, record))
	if got, err := f.Identify(test, now); !errors.Is(err, ErrDisabled) || !got.TestMode {
		t.Errorf("a disabled test key: %+v, %v", got, err)
	}
}

// The holder of a test key may try to have its digest published as that of a live key, and the other way round.
func TestIdentify_PrefixOfOtherMode(t *testing.T) {
	live, _ := issue(t, "elsewhere-live", "acme")
	test, _ := testKey(t)
	for _, c := range []struct {
		presented string
		test      bool
	}{{live, true}, {test, false}} {
		f := newFixture()
		_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
		digest := apikey.NewDigest(c.presented)
		f.publish(t, "claimant", "acme", func(r *published.KeyRecord) {
			r.Test, r.HandledDigest = c.test, &digest
			r.Current.Digest, r.Current.Prefix = digest, ""
		})
		if got, err := f.Identify(c.presented, now); !errors.Is(err, ErrWrongMode) || got.Live {
			t.Errorf("%.8s as a key of test mode %t: %+v, %v", c.presented, c.test, got, err)
		}
	}
}

// laterVersion makes an object as the next version of this program may write it: the envelope, and other shapes of all else.
func laterVersion(t testing.TB, data []byte, change map[string]any) []byte {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for name := range fields {
		switch name {
		case "previous", "lastRotation", "handledDigest", "rateLimit", "sessions", "displayName":
			fields[name] = []any{"another shape", 7}
		}
	}
	fields["version"] = 2
	maps.Copy(fields, change)
	out, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func laterSecret(t testing.TB, record published.KeyRecord, change map[string]any) *corev1.Secret {
	t.Helper()
	secret := newSecret(t, record)
	secret.ResourceVersion = "later"
	secret.Data["record.json"] = laterVersion(t, secret.Data["record.json"], change)
	return secret
}

func laterConfigMap(t testing.TB, uid types.UID, change map[string]any) *corev1.ConfigMap {
	t.Helper()
	configMap := newConfigMap(t, merchantRecord(uid))
	configMap.ResourceVersion = "later"
	configMap.Data["merchant.json"] = string(laterVersion(t, []byte(configMap.Data["merchant.json"]), change))
	return configMap
}

// A replica meets the record that the next version wrote of a key: it may know an earlier one, or have just started. It refuses what the
// envelope refuses, goes on with what it knows, and never refuses a key that may be good.
func TestIdentify_RecordOfTheNextVersion(t *testing.T) {
	long := now.Add(time.Hour)
	for name, test := range map[string]struct {
		change         map[string]any
		known, unknown error
		revocations    bool
	}{
		"Active":                  {nil, nil, ErrNewerVersion, false},
		"Disabled":                {map[string]any{"state": "Disabled"}, ErrDisabled, ErrDisabled, true},
		"in a state of that time": {map[string]any{"state": "Paused"}, ErrDisabled, ErrDisabled, true},
		"revoked":                 {map[string]any{"revoked": true}, ErrDisabled, ErrDisabled, true},
		"expired":                 {map[string]any{"expiresAt": now.Add(-time.Second)}, ErrExpired, ErrExpired, false},
		"expires later":           {map[string]any{"expiresAt": long}, nil, ErrNewerVersion, false},
	} {
		t.Run(name, func(t *testing.T) {
			started, restarted := newFixture(), newFixture()
			for _, f := range []fixture{started, restarted} {
				_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
			}
			key, record := started.publish(t, "till", "acme")
			record.Revision++
			later := laterSecret(t, record, test.change)
			_ = started.keyInformer.Update(later)
			_ = restarted.keyInformer.Replace([]any{later}, "1")
			if got, err := started.Identify(key, now); !errors.Is(err, test.known) || err == nil && !got.Live {
				t.Errorf("a replica that knew it: live %t, %v; want %v", got.Live, err, test.known)
			}
			if _, err := restarted.Identify(key, now); !errors.Is(err, test.unknown) {
				t.Errorf("a replica that has just started: %v, want %v", err, test.unknown)
			}
			// It may be in its overlap, of which the envelope says nothing.
			if _, err := restarted.Identify(reissue(t, "till"), now); !errors.Is(err, test.unknown) {
				t.Errorf("another key of the id, on a replica that has just started: %v, want %v", err, test.unknown)
			}
			if revoked := len(started.events.calls) > 1; revoked != test.revocations { // the first is of the first sight
				t.Errorf("key events: %v", started.events.calls)
			}
		})
	}
}

// The next version changes what a key may do, and from where. A replica that knew the key follows it: what the next version narrowed is
// narrow, also by words and addresses that this version cannot read, and what it widened is wide.
func TestIdentify_NarrowedByTheNextVersion(t *testing.T) {
	inside, outside := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("198.51.100.7")
	few := func(r *published.KeyRecord) {
		r.Permissions, r.IPAllowlist = []v1alpha1.Permission{"create"}, []v1alpha1.IPBlock{"203.0.113.7"}
	}
	for name, test := range map[string]struct {
		before                  func(*published.KeyRecord)
		change                  map[string]any
		permissions             []v1alpha1.Permission
		fromInside, fromOutside bool
	}{
		"nothing":                        {few, nil, []v1alpha1.Permission{"create"}, true, false},
		"fewer permissions":              {nil, map[string]any{"permissions": []string{"read"}}, []v1alpha1.Permission{"read"}, true, true},
		"other permissions":              {few, map[string]any{"permissions": []string{"read"}}, []v1alpha1.Permission{"read"}, true, false},
		"no permission":                  {nil, map[string]any{"permissions": []string{}}, []v1alpha1.Permission{}, true, true},
		"permissions of that time":       {nil, map[string]any{"permissions": []string{"payout", "*"}}, []v1alpha1.Permission{}, true, true},
		"fewer addresses":                {nil, map[string]any{"ipAllowlist": []string{"203.0.113.0/24"}}, v1alpha1.ImpliedPermissions(), true, false},
		"other addresses":                {few, map[string]any{"ipAllowlist": []string{"198.51.100.7"}}, []v1alpha1.Permission{"create"}, false, true},
		"addresses of that time":         {nil, map[string]any{"ipAllowlist": []string{"till.shop.example"}}, v1alpha1.ImpliedPermissions(), false, false},
		"addresses and one of that time": {nil, map[string]any{"ipAllowlist": []string{"till.shop.example", "203.0.113.7"}}, v1alpha1.ImpliedPermissions(), true, false},
		"all permissions":                {few, map[string]any{"permissions": nil}, v1alpha1.ImpliedPermissions(), true, false},
		"all addresses":                  {few, map[string]any{"ipAllowlist": nil}, []v1alpha1.Permission{"create"}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
			if test.before == nil {
				test.before = func(*published.KeyRecord) {}
			}
			key, record := f.publish(t, "till", "acme", test.before)
			record.Revision++
			_ = f.keyInformer.Update(laterSecret(t, record, test.change))
			got, err := f.Identify(key, now)
			if err != nil || !got.Live {
				t.Fatalf("live %t, %v", got.Live, err)
			}
			if diff := cmp.Diff(test.permissions, got.Permissions.List()); diff != "" {
				t.Errorf("permissions (-want +got):\n%s", diff)
			}
			if in, out := got.Allows(inside), got.Allows(outside); in != test.fromInside || out != test.fromOutside {
				t.Errorf("from inside %t, from outside %t", in, out)
			}
		})
	}
}

// The next version rotates a key. A replica that knew the former record accepts the new key, and the old one no longer on its own:
// whether it has an overlap is for Redis to say.
func TestIdentify_RotatedByTheNextVersion(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	old, record := f.publish(t, "till", "acme")
	fresh, next := issue(t, "till", "acme")
	next.Generation, next.Revision, next.Current.CreatedAt = 2, record.Revision+1, record.Current.CreatedAt.Add(time.Second)
	_ = f.keyInformer.Update(laterSecret(t, next, nil))
	if got, err := f.Identify(fresh, now); err != nil || !got.Live || got.Generation != 2 || got.Order != next.Order() {
		t.Errorf("the new key: %+v, %v", got, err)
	}
	if got, err := f.Identify(old, now); err != nil || got.Live {
		t.Errorf("the old key: live %t, %v", got.Live, err)
	}
	_ = f.keyInformer.Update(laterSecret(t, record, nil)) // put back from a backup
	if got, err := f.Identify(old, now); err != nil || got.Live {
		t.Errorf("the old key, put back: live %t, %v", got.Live, err)
	}
}

// The same for the merchant of a key.
func TestIdentify_MerchantOfTheNextVersion(t *testing.T) {
	for name, test := range map[string]struct {
		change map[string]any
		known  v1alpha1.MerchantState
	}{
		"Active":                  {nil, v1alpha1.MerchantActive},
		"Suspended":               {map[string]any{"state": "Suspended"}, v1alpha1.MerchantSuspended},
		"Closed":                  {map[string]any{"state": "Closed"}, v1alpha1.MerchantClosed},
		"in a state of that time": {map[string]any{"state": "Dormant"}, v1alpha1.MerchantSuspended},
		"revoked":                 {map[string]any{"revoked": true}, v1alpha1.MerchantSuspended},
	} {
		t.Run(name, func(t *testing.T) {
			started, restarted := newFixture(), newFixture()
			_ = started.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
			key, record := started.publish(t, "till", "acme")
			_ = restarted.keyInformer.Add(newSecret(t, record))
			later := laterConfigMap(t, "acme", test.change)
			_ = started.merchantInformer.Update(later)
			_ = restarted.merchantInformer.Replace([]any{later}, "1")
			got, err := started.Identify(key, now)
			if err != nil || !got.Live || got.Merchant.State != test.known || got.Merchant.DisplayName != "Acme" {
				t.Errorf("a replica that knew it: %+v, %v; want %s", got.Merchant, err, test.known)
			}
			if _, err := restarted.Identify(key, now); !errors.Is(err, ErrNewerVersion) {
				t.Errorf("a replica that has just started: %v", err)
			}
			// Another replica may have just issued it, and a request that is not served does not ask Redis.
			if _, err := restarted.Identify(reissue(t, "till"), now); !errors.Is(err, ErrNewerVersion) {
				t.Errorf("another key of the id, on a replica that has just started: %v", err)
			}
			for what, wrong := range map[string]string{"mistyped": key[:len(key)-1] + "!", "of no key here": reissue(t, "stranger")} {
				if _, err := restarted.Identify(wrong, now); !errors.Is(err, ErrUnknown) {
					t.Errorf("a key %s: %v", what, err)
				}
			}
			disabled := record
			disabled.State, disabled.Revision = v1alpha1.ApiKeyDisabled, record.Revision+1
			_ = restarted.keyInformer.Update(newSecret(t, disabled))
			for _, presented := range []string{key, reissue(t, "till")} {
				if _, err := restarted.Identify(presented, now); !errors.Is(err, ErrDisabled) {
					t.Errorf("a disabled key: %v", err)
				}
			}
			record.Revision += 2
			_ = restarted.keyInformer.Update(newSecret(t, record))
			if restarted.Merchant(published.ID("acme")) != nil {
				t.Error("a merchant that cannot be read is shown")
			}
			_ = restarted.merchantInformer.Update(newConfigMap(t, merchantRecord("acme"))) // rolled forward or repaired
			if got, err := restarted.Identify(key, now); err != nil || !got.Live {
				t.Errorf("after a readable record: %v", err)
			}
		})
	}
}

// The next version changes from where the keys of a merchant are accepted.
func TestIdentify_AllowlistOfTheNextVersion(t *testing.T) {
	inside, outside := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("198.51.100.7")
	list := []string{"203.0.113.0/24"}
	for name, test := range map[string]struct {
		change                              map[string]any
		fromInside, fromOutside, reportOnly bool
	}{
		"as it was":              {nil, true, true, true},
		"narrower":               {map[string]any{"ipAllowlist": list}, true, false, true},
		"enforced":               {map[string]any{"ipAllowlist": list, "ipAllowlistMode": "Enforce"}, true, false, false},
		"in a mode of that time": {map[string]any{"ipAllowlist": list, "ipAllowlistMode": "Learn"}, true, false, false},
		"addresses of that time": {map[string]any{"ipAllowlist": []string{"till.shop.example"}}, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			reporting := func(r *published.MerchantRecord) { r.IPAllowlistMode = v1alpha1.IPAllowlistReport }
			configMap := newConfigMap(t, merchantRecord("acme", reporting))
			_ = f.merchantInformer.Add(configMap)
			key, _ := f.publish(t, "till", "acme")
			later := configMap.DeepCopy()
			later.ResourceVersion = "later"
			later.Data["merchant.json"] = string(laterVersion(t, []byte(configMap.Data["merchant.json"]), test.change))
			_ = f.merchantInformer.Update(later)
			got, err := f.Identify(key, now)
			if err != nil || !got.Live || got.Merchant.ReportOnly != test.reportOnly {
				t.Fatalf("%+v, %v", got, err)
			}
			if in, out := got.Allows(inside), got.Allows(outside); in != test.fromInside || out != test.fromOutside {
				t.Errorf("from inside %t, from outside %t", in, out)
			}
		})
	}
}

// A tombstone of the next version ends its key as one of this version does.
func TestIdentify_TombstoneOfTheNextVersion(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	key, record := f.publish(t, "till", "acme")
	tombstone, err := published.EncodeTombstone(namespace, published.Tombstone{
		Kind: published.TombstoneApiKey, ID: record.KeyID, Source: record.Source, EndedAt: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	tombstone.Data["tombstone.json"] = `{"version":2,"anything":"else"}`
	_ = f.Informer("tombstone").Add(tombstone)
	if _, err := f.Identify(key, now); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v, want ErrUnknown", err)
	}
}
