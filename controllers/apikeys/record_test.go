package apikeys

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// A new key starts from a record that says all the spec says and has handled all it asks for.
func TestRecord_NewKey(t *testing.T) {
	f := upToDate()
	expires := metav1.NewTime(now.Add(time.Hour).In(time.FixedZone("", 3600)))
	f.apiKey.Spec.State, f.apiKey.Spec.ExpiresAt, f.apiKey.Spec.Rotation.Trigger = v1alpha1.ApiKeyDisabled, &expires, "b"
	f.apiKey.Spec.Permissions, f.apiKey.Spec.IPAllowlist = []v1alpha1.Permission{"create"}, []v1alpha1.IPBlock{"203.0.113.7"}
	key := decide(f).newKey
	if key == nil {
		t.Fatal("no new key")
	}
	next := published.Current{Digest: apikey.NewDigest("next"), CreatedAt: now}
	want := *f.record
	want.Generation = 3
	want.Revision = now.UnixMilli()
	want.State = v1alpha1.ApiKeyDisabled
	inUTC := expires.UTC()
	want.ExpiresAt = &inUTC
	want.Permissions, want.IPAllowlist = []v1alpha1.Permission{"create"}, []v1alpha1.IPBlock{"203.0.113.7"}
	want.HandledTrigger, want.TriggerTAT = "b", now.Add(time.Minute)
	want.Current = next
	want.Previous = []published.Previous{{Digest: f.record.Current.Digest, Prefix: "mk_live_x", ValidUntil: now.Add(time.Hour)}}
	want.LastRotation = published.RotationEvent{Time: now, Cause: v1alpha1.RotationTrigger}
	if diff := cmp.Diff(want, key.base.Rotated(next, key.cause, key.overlap, now)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestRecord_First(t *testing.T) {
	f := upToDate().lost().with()
	f.apiKey.Status = v1alpha1.ApiKeyStatus{}
	key := decide(f).newKey
	if key == nil {
		t.Fatal("no new key")
	}
	record := key.base.Rotated(published.Current{Digest: apikey.NewDigest("first"), CreatedAt: now}, key.cause, key.overlap, now)
	secret, err := published.EncodeKey("credentials", record)
	if err != nil {
		t.Fatalf("the first record cannot be published: %v", err)
	}
	if got, err := published.DecodeKey(secret); err != nil || got.Source.UID != thisUID || got.MerchantID != thisMerchant || len(got.Previous) != 0 {
		t.Errorf("published %+v, %v", got, err)
	}
}

// The mode is that of the ApiKey, from the first record on, and its keys have the label of the mode.
func TestRecord_Mode(t *testing.T) {
	f := upToDate().lost().with()
	f.apiKey.Spec.Mode = v1alpha1.ModeTest
	base := decide(f).newKey.base
	if key, err := base.NewKey(); err != nil || !base.Test || !apikey.IsTest(key.Reveal()) {
		t.Errorf("the record of a test key has test %t, and its key the label %.8s (%v)", base.Test, key.Reveal(), err)
	}
	repaired := upToDate()
	repaired.apiKey.Spec.Mode = v1alpha1.ModeTest
	if got := decide(repaired).repair; got == nil || !got.Test {
		t.Errorf("a record of the wrong mode is not repaired: %+v", got)
	}
}

// What only restricts a key is written whatever else the ApiKey wants, and nothing else with it.
func TestRestrictedRecord(t *testing.T) {
	early, late := now.Add(time.Hour), now.Add(48*time.Hour)
	expires := func(at time.Time) *metav1.Time { return &metav1.Time{Time: at} }
	for name, test := range map[string]struct {
		edit func(*facts)
		want func(*published.KeyRecord) // nil: nothing is written
	}{
		"nothing": {},
		"disabled": {
			edit: func(f *facts) { f.apiKey.Spec.State = v1alpha1.ApiKeyDisabled },
			want: func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled },
		},
		"disabled, with a trigger, a mode and a rename": {
			edit: func(f *facts) {
				f.apiKey.Spec.State, f.apiKey.Spec.Rotation.Trigger = v1alpha1.ApiKeyDisabled, "b"
				f.apiKey.Spec.Mode, f.record.Source.Name = v1alpha1.ModeTest, "former"
			},
			want: func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled },
		},
		"enabled":     {edit: func(f *facts) { f.record.State = v1alpha1.ApiKeyDisabled }},
		"no Merchant": {edit: func(f *facts) { f.merchantID = "" }, want: func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled }},
		"it expires":  {edit: func(f *facts) { f.apiKey.Spec.ExpiresAt = expires(early) }, want: func(r *published.KeyRecord) { r.ExpiresAt = &early }},
		"it expires earlier": {
			edit: func(f *facts) { f.apiKey.Spec.ExpiresAt, f.record.ExpiresAt = expires(early), &late },
			want: func(r *published.KeyRecord) { r.ExpiresAt = &early },
		},
		"it expires later":     {edit: func(f *facts) { f.apiKey.Spec.ExpiresAt, f.record.ExpiresAt = expires(late), &early }},
		"it expires no longer": {edit: func(f *facts) { f.record.ExpiresAt = &early }},
		"it may do less": {
			edit: func(f *facts) { f.apiKey.Spec.Permissions = []v1alpha1.Permission{"read", "create"} },
			want: func(r *published.KeyRecord) { r.Permissions = []v1alpha1.Permission{"read", "create"} },
		},
		"it may do less, and something else": {
			edit: func(f *facts) {
				f.record.Permissions, f.apiKey.Spec.Permissions = []v1alpha1.Permission{"create", "read"}, []v1alpha1.Permission{"list", "read"}
			},
			want: func(r *published.KeyRecord) { r.Permissions = []v1alpha1.Permission{"read"} },
		},
		"it may do something else only": {
			edit: func(f *facts) {
				f.record.Permissions, f.apiKey.Spec.Permissions = []v1alpha1.Permission{"create"}, []v1alpha1.Permission{"list"}
			},
			want: func(r *published.KeyRecord) { r.Permissions = []v1alpha1.Permission{} },
		},
		"it may do more": {edit: func(f *facts) {
			f.record.Permissions, f.apiKey.Spec.Permissions = []v1alpha1.Permission{"create"}, []v1alpha1.Permission{"list", "create"}
		}},
		"it may do everything": {edit: func(f *facts) { f.record.Permissions = []v1alpha1.Permission{"create"} }},
		"it is accepted from fewer addresses": {
			edit: func(f *facts) {
				f.record.IPAllowlist, f.apiKey.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"}, []v1alpha1.IPBlock{"203.0.113.7"}
			},
			want: func(r *published.KeyRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} },
		},
		"it is accepted from other addresses": {
			edit: func(f *facts) {
				f.record.IPAllowlist, f.apiKey.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24"}, []v1alpha1.IPBlock{"198.51.100.7"}
			},
			want: func(r *published.KeyRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"198.51.100.7"} },
		},
		"it is accepted from more addresses": {edit: func(f *facts) {
			f.record.IPAllowlist, f.apiKey.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"}, []v1alpha1.IPBlock{"203.0.113.0/24"}
		}},
		"it is accepted from any address": {edit: func(f *facts) { f.record.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} }},
		"an overlap that ended": {edit: func(f *facts) {
			f.record.Previous = []published.Previous{{ValidUntil: now.Add(-reconciler.EndedMargin)}}
		}, want: func(r *published.KeyRecord) { r.Previous = nil }},
		"the record of another ApiKey": {edit: func(f *facts) {
			f.record.Source.UID, f.apiKey.Spec.State = "another", v1alpha1.ApiKeyDisabled
		}},
		"no record": {edit: func(f *facts) { f.record, f.apiKey.Spec.State = nil, v1alpha1.ApiKeyDisabled }},
		"what a tenant may write says otherwise": {edit: func(f *facts) {
			f.apiKey.Status = v1alpha1.ApiKeyStatus{KeyGeneration: 1 << 53, Prefix: "mk_live_y"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := upToDate()
			if test.edit != nil {
				test.edit(&f)
			}
			got := restrictedRecord(f)
			if (got != nil) != (test.want != nil) {
				t.Fatalf("writes %+v", got)
			}
			if got == nil {
				return
			}
			want := *f.record
			test.want(&want)
			want.Revision = now.UnixMilli()
			if diff := cmp.Diff(want, *got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if f.record = got; restrictedRecord(f) != nil {
				t.Error("it is written again")
			}
		})
	}
}

// A record that was restored has no key that somebody has, whatever a reader makes of it, and replicas refuse by it the newest key as well. It is
// written once.
func TestRestrictedRecord_Outdated(t *testing.T) {
	newest, issued := now.Add(time.Minute).UnixMilli(), upToDate().record.Order().Issued
	for name, test := range map[string]struct {
		edit       func(*facts)
		newest     int64 // when the newest known key was issued
		generation int64
	}{
		"this operator has seen a newer one": {func(f *facts) {
			f.seen = knownVersion{version: version{published.Order{Issued: newest, Revision: 8}, 9}}
		}, newest, 9},
		"the API knows a newer one":   {func(f *facts) { f.record.Superseded, f.record.NewerIssued = true, newest }, newest, 2},
		"the API knew, but not which": {func(f *facts) { f.record.Superseded = true }, issued, 2},
		"a withdrawn one, in place of a newer one": {func(f *facts) {
			f.seen = knownVersion{version: version{published.Order{Issued: newest, Revision: 8}, 9}}
			f.record.Superseded, f.record.NewerIssued = true, newest-1000
			f.record.Current = published.Placeholder(time.UnixMilli(newest - 999))
		}, newest, 9},
	} {
		t.Run(name, func(t *testing.T) {
			f := upToDate().external("mine")
			f.record.Previous = []published.Previous{{Digest: apikey.NewDigest("overlap"), ValidUntil: now.Add(time.Hour)}}
			test.edit(&f)
			f.apiKey.Spec.State = v1alpha1.ApiKeyDisabled
			before := *f.record
			got := restrictedRecord(f)
			if got == nil || got.Order().Issued != test.newest+1 || got.State != v1alpha1.ApiKeyDisabled || got.Generation != test.generation {
				t.Fatalf("wrote %+v", got)
			}
			if len(got.Accepted()) != 0 {
				t.Errorf("accepts %v", got.Accepted())
			}
			reader := *got
			reader.Superseded, reader.State = false, v1alpha1.ApiKeyActive
			for _, digest := range []apikey.Digest{before.Current.Digest, apikey.NewDigest("overlap")} {
				if reader.Accepts(digest, now) {
					t.Error("a reader that knows nothing of superseded records accepts an old key")
				}
			}
			if _, err := published.EncodeKey("credentials", *got); err != nil {
				t.Error(err)
			}
			f.record, f.seen = got, knownVersion{} // as after a restart of the operator
			if again := restrictedRecord(f); again != nil {
				t.Errorf("written again: %+v", again)
			}
			if nextGeneration(f) != test.generation+1 {
				t.Errorf("the next generation is %d", nextGeneration(f))
			}
			if _, blocked := digestReplaced(f); !blocked {
				t.Error("the digest in the spec, which may have been replaced, would be published")
			}
		})
	}
}

// A replacement is newer than what the API knows of, and than what this operator has seen.
func TestRecord_ReplacesARestoredOne(t *testing.T) {
	for name, edit := range map[string]func(*facts){
		"the API knows": func(f *facts) { f.record.NewerIssued = now.Add(time.Hour).UnixMilli() },
		"seen":          func(f *facts) { f.seen.order.Issued = now.Add(time.Hour).UnixMilli() },
	} {
		f := upToDate()
		f.record.Superseded = true
		edit(&f)
		key := decide(f).newKey
		record := key.base.Rotated(published.Current{Digest: apikey.NewDigest("next"), CreatedAt: now}, key.cause, key.overlap, now)
		if !record.Current.CreatedAt.After(now.Add(time.Hour)) || record.Superseded || record.NewerIssued != 0 {
			t.Errorf("%s: issued at %s, %+v", name, record.Current.CreatedAt, record)
		}
	}
}

// A repair changes only what follows from the ApiKey.
func TestRecord_Repair(t *testing.T) {
	f := upToDate()
	f.record.Previous = []published.Previous{{Digest: apikey.NewDigest("old"), ValidUntil: now.Add(time.Hour)}}
	want := *f.record
	f.record.Source.Name, f.record.State = "somebody", v1alpha1.ApiKeyDisabled
	got := decide(f).repair
	if got == nil {
		t.Fatal("no repair")
	}
	if got.Revision <= f.record.Revision {
		t.Errorf("revision %d follows %d", got.Revision, f.record.Revision)
	}
	want.Revision = got.Revision
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("repair (-want +got):\n%s", diff)
	}
}

// A restored Secret gets a revision that it would not be taken for restored by again, whatever the
// operator's clock says: else every pass would write.
func TestRecord_RestoredIsRevisedOnce(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		f := upToDate()
		f.secret.CreationTimestamp = metav1.NewTime(now.Add(ahead))
		revised := decide(f).repair
		if revised == nil || revised.Generation != f.record.Generation {
			t.Fatalf("a Secret created at %s: repaired to %+v, want another revision and no rotation", f.secret.CreationTimestamp, revised)
		}
		f.record = revised
		if again := decide(f).repair; again != nil {
			t.Errorf("a Secret created at %s is revised again", f.secret.CreationTimestamp)
		}
	}
}

func TestRecord_OverlapEnds(t *testing.T) {
	f := upToDate()
	f.times.Check = 24 * time.Hour // only the ends matter here
	first, second := now.Add(time.Minute), now.Add(time.Hour)
	f.record.Previous = []published.Previous{
		{Digest: apikey.NewDigest("newer"), ValidUntil: second}, {Digest: apikey.NewDigest("older"), ValidUntil: first},
	}
	if got, want := nextCheck(f, outcomeFor(f)), first.Sub(now); got != want {
		t.Errorf("checks again in %s, want %s, the end of the first overlap", got, want)
	}
	f.now = first
	outcome := outcomeFor(f)
	if p := decide(f); p.repair != nil || len(newStatus(f, outcome).PreviousKeys) != 1 || nextCheck(f, outcome) != reconciler.EndedMargin {
		t.Errorf("at its end: repaired to %+v with %d previous keys in the status; want it in the record, for readers whose clocks are behind",
			p.repair, len(newStatus(f, outcome).PreviousKeys))
	}
	f.now = first.Add(reconciler.EndedMargin)
	repaired := decide(f).repair
	if repaired == nil || len(repaired.Previous) != 1 || repaired.Previous[0].ValidUntil != second {
		t.Errorf("a while later: %+v, want the other overlap alone", repaired)
	}
}

// While nobody knows what time it is, nothing ends, rotates or is deleted because of the time. What a person asks for happens.
func TestDecide_ClockWrong(t *testing.T) {
	for desc, edit := range map[string]func(*facts){
		"an ended overlap": func(f *facts) {
			f.record.Previous = []published.Previous{{Digest: apikey.NewDigest("older"), ValidUntil: now.Add(-time.Hour)}}
		},
		"a schedule":  func(f *facts) { f.apiKey.Spec.Rotation.EverySeconds = new(int32(300)) },
		"a retention": func(f *facts) { f.apiKey.Spec.Delivery = &v1alpha1.Delivery{RetainSeconds: new(int32(300))} },
	} {
		t.Run(desc, func(t *testing.T) {
			f := upToDate()
			edit(&f)
			f.now = now.Add(24 * time.Hour)
			if p := decide(f); p.idle() {
				t.Fatal("with the right clock there is nothing to do")
			}
			f.clockWrong = true
			p := decide(f)
			if !p.idle() {
				t.Errorf("new key: %t, repair: %+v, remove: %v", p.newKey != nil, p.repair, p.remove)
			}
			if next := nextCheck(f, outcomeFor(f)); next != reconciler.ClockRecheck {
				t.Errorf("checks again in %s, want %s", next, reconciler.ClockRecheck)
			}
			f.apiKey.Spec.State = v1alpha1.ApiKeyDisabled
			if p := decide(f); p.repair == nil || p.repair.State != v1alpha1.ApiKeyDisabled {
				t.Errorf("disabled by a person: repaired to %+v", p.repair)
			}
		})
	}
}
