package keystate_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// The writes of any number of replicas may come in any order: the newest stays, and of one order a revocation is final.
func TestWriteOverride_AnyOrder(t *testing.T) {
	s := open(t, shared.URL())
	rapid.Check(t, func(t *rapid.T) {
		asks := merchant()
		digests := map[published.Order]apikey.Digest{}
		var newest published.Order
		revoked := false
		for range rapid.IntRange(1, 8).Draw(t, "writes") {
			order := published.Order{
				Issued: rapid.Int64Range(1, 3).Draw(t, "issued"), Revision: rapid.Int64Range(1, 3).Draw(t, "revision"),
			}
			revokes := rapid.Bool().Draw(t, "revokes")
			if _, ok := digests[order]; !ok {
				digests[order] = newDigest()
			}
			override := keystate.Override{Ref: keyRef(asks), Order: order}
			if !revokes {
				override.Accepted = []keystate.Accepted{{Digest: digests[order]}}
			}
			err := s.Keys.WriteOverride(t.Context(), override)
			if older := order.Compare(newest) < 0; errors.Is(err, keystate.ErrNewerOverride) != older || (err != nil && !older) {
				t.Fatalf("%v after %v: %v", order, newest, err)
			}
			if order.Compare(newest) > 0 {
				newest, revoked = order, false
			}
			revoked = revoked || (revokes && order == newest)
		}
		for order, digest := range digests {
			if got, want := asking(t, s, asks, digest), order == newest && !revoked; got != want {
				t.Fatalf("the digest of %v is accepted: %v; the newest is %v, revoked: %v", order, got, newest, revoked)
			}
		}
		read, _, err := s.Keys.Overrides(t.Context(), keyRef(asks))
		if err != nil || read[0].Order != newest || (len(read[0].Accepted) == 0) != revoked {
			t.Fatalf("read %+v, %v; the newest is %v, revoked: %v", read, err, newest, revoked)
		}
	})
}

// A published object that is gone revokes what Redis knew of its key before, and nothing that was published since.
func TestRevokeGone(t *testing.T) {
	s := open(t, shared.URL())
	known := published.Order{Issued: 1_700_000_000_000, Revision: 1_700_000_000_000}
	rotated := published.Order{Issued: 1_750_000_000_000, Revision: 1_750_000_000_000}
	disabled := published.Order{Issued: rotated.Issued, Revision: rotated.Revision + 1}
	for desc, test := range map[string]struct {
		seen   published.Order // by who finds that the object is gone
		stored published.Order // when that is written
		knows  published.Order
		lives  bool
	}{
		"nothing newer is stored":                   {known, known, known, false},
		"a rotation that was missed":                {rotated, rotated, known, false},
		"a record that was published since":         {known, rotated, known, true},
		"one with a rotation that was missed":       {rotated, disabled, known, true},
		"a replica that knows the rotation as well": {rotated, rotated, rotated, false},
		"Redis has lost the rotation since":         {rotated, known, known, false},
	} {
		asks, digest := merchant(), newDigest()
		write(t, s, keystate.Override{Ref: keyRef(asks), Order: test.stored, Accepted: []keystate.Accepted{{Digest: digest}}})
		if err := s.Keys.RevokeGone(t.Context(), keyRef(asks), test.knows, test.seen); errors.Is(err, keystate.ErrNewerOverride) != test.lives {
			t.Errorf("%s: %v", desc, err)
		}
		if got := asking(t, s, asks, digest); got != test.lives {
			t.Errorf("%s: the key is accepted: %v", desc, got)
		}
		// A record that is published again outranks the revocation.
		next := test.stored
		next.Revision++
		write(t, s, keystate.Override{Ref: keyRef(asks), Order: next, Accepted: []keystate.Accepted{{Digest: digest}}})
		if !asking(t, s, asks, digest) {
			t.Errorf("%s: a record that is published again is rejected", desc)
		}
	}
}

// The end of an ApiKey outranks whatever was published of it by the clock of Redis, by that of the operator, or is stored of it.
func TestWriteOverride_Ended(t *testing.T) {
	s := open(t, shared.URL())
	for clock, redis := range map[string]*services{
		"right": s, "an hour ahead": open(t, redistest.StartAhead(t, time.Hour).URL()), "an hour behind": open(t, redistest.StartAhead(t, -time.Hour).URL()),
	} {
		for name, ahead := range map[string]time.Duration{"an hour ago": -time.Hour, "now": 0, "in a day": 24 * time.Hour} {
			t.Run(clock+", stored of "+name, func(t *testing.T) {
				asks, digest := merchant(), newDigest()
				at := time.Now().Add(ahead).UnixMilli()
				stored := keystate.Override{Ref: keyRef(asks), Order: published.Order{Issued: at, Revision: at}, Accepted: []keystate.Accepted{{Digest: digest}}}
				write(t, redis, stored)
				for range 2 { // each replica writes it
					if err := redis.Keys.WriteOverride(t.Context(), keystate.Override{Ref: keyRef(asks), Ended: true}); err != nil {
						t.Fatal(err)
					}
				}
				write(t, redis, stored) // a replica that is late
				if asking(t, redis, asks, digest) {
					t.Error("a replica that knows an older record accepts the key")
				}
				asks.Order, asks.Accepted, asks.Digest = stored.Order, true, digest
				if _, err := redis.Admit(t.Context(), asks); !errors.Is(err, admission.ErrKeyRejected) {
					t.Errorf("a replica that knows the last record: %v", err)
				}
			})
		}
		t.Run(clock+", published and not stored", func(t *testing.T) {
			asks, now := merchant(), time.Now()
			if err := redis.Keys.WriteOverride(t.Context(), keystate.Override{Ref: keyRef(asks), Order: published.Order{Issued: now.UnixMilli()}, Ended: true}); err != nil {
				t.Fatal(err)
			}
			at := now.Add(30 * time.Second).UnixMilli() // by the clock of the operator
			asks.Order, asks.Accepted = published.Order{Issued: at, Revision: at}, true
			if _, err := redis.Admit(t.Context(), asks); !errors.Is(err, admission.ErrKeyRejected) {
				t.Errorf("a replica that knows the last record: %v", err)
			}
		})
	}
}

func TestOverrides(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	until := time.UnixMilli(1_800_000_000_000)
	overlap := keystate.Override{
		Ref: keyRef(asks), Order: published.Order{Issued: 7, Revision: 9},
		Accepted: []keystate.Accepted{{Digest: newDigest()}, {Digest: newDigest(), Until: until}},
	}
	revoked := keystate.Override{Ref: keystate.Ref{MerchantID: asks.MerchantID, KeyID: newID()}, Order: published.Order{Issued: 1, Revision: 2}}
	write(t, s, overlap)
	write(t, s, revoked)
	got, _, err := s.Keys.Overrides(t.Context(), overlap.Ref, keystate.Ref{MerchantID: asks.MerchantID, KeyID: newID()}, revoked.Ref)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]keystate.Override{overlap, {}, revoked}, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("overrides (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		desc   string
		digest apikey.Digest
		at     time.Time
		want   bool
	}{
		{"without an end", overlap.Accepted[0].Digest, until.Add(time.Hour), true},
		{"before its end", overlap.Accepted[1].Digest, until.Add(-time.Millisecond), true},
		{"at its end", overlap.Accepted[1].Digest, until, false},
		{"another", newDigest(), until, false},
	} {
		if got[0].Accepts(test.digest, test.at) != test.want {
			t.Errorf("%s: accepted %v", test.desc, !test.want)
		}
	}
	c := client(t, shared)
	for _, text := range []string{"", "-", "7 -", "7 9", "7 9 x", "7 9 " + newDigest().Hex(), "x 9 -", "7 9 - -", "7 9 " + newDigest().Hex() + " x"} {
		c.Set(t.Context(), merchantTag(asks.MerchantID)+"key:"+asks.KeyID, text, time.Minute)
		if _, _, err := s.Keys.Overrides(t.Context(), overlap.Ref); !errors.Is(err, redis.ErrCorrupt) {
			t.Errorf("%q: %v, want ErrCorrupt", text, err)
		}
	}
}

func TestWriteOverride_ConcurrentKeepsHighest(t *testing.T) {
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	asks := merchant()
	digests := make([]apikey.Digest, 50)
	var writers sync.WaitGroup
	for i := range digests {
		digests[i] = newDigest()
		writers.Go(func() {
			write(t, replicas[i%2], keystate.Override{
				Ref: keyRef(asks), Order: published.Order{Revision: int64(i + 1)}, Accepted: []keystate.Accepted{{Digest: digests[i]}},
			})
		})
	}
	writers.Wait()
	for i, digest := range digests {
		if got, want := asking(t, replicas[0], asks, digest), i == len(digests)-1; got != want {
			t.Errorf("the digest of revision %d is accepted: %v", i+1, got)
		}
	}
}

func TestWriteOverride_OtherKeys(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	if err := s.Keys.WriteOverride(t.Context(), keystate.Override{Ref: keyRef(asks), Order: published.Order{Revision: 9}}); err != nil {
		t.Fatal(err)
	}
	asks.KeyID = newID()
	if _, err := s.Admit(t.Context(), asks); err != nil {
		t.Errorf("another key of the merchant: %v", err)
	}
}

func TestWriteOverride_LargeRevisions(t *testing.T) {
	s := open(t, shared.URL())
	asks := merchant()
	const highest = 1<<53 - 1
	put := func(order published.Order) apikey.Digest {
		digest := newDigest()
		write(t, s, keystate.Override{Ref: keyRef(asks), Order: order, Accepted: []keystate.Accepted{{Digest: digest}}})
		return digest
	}
	for _, order := range []func(int64) published.Order{
		func(n int64) published.Order { return published.Order{Issued: 1, Revision: n} },
		func(n int64) published.Order { return published.Order{Issued: n, Revision: n} },
	} {
		put(order(highest - 1))
		last := put(order(highest))
		put(order(highest - 1))
		if !asking(t, s, asks, last) {
			t.Error("the newest is not the one in force")
		}
	}
}

// A tenant that makes, rotates and deletes ApiKeys without end leaves nothing in Redis for longer than the week in which a late replica must know of
// the end. Other ApiKeys keep what is known of them.
func TestWriteOverride_EndedKeepsAWeek(t *testing.T) {
	s, inspect := open(t, shared.URL()), client(t, shared)
	asks, victim := merchant(), merchant()
	for _, used := range []admission.Request{asks, victim} {
		must(t, second(s.Admit(t.Context(), used)))
		must(t, inspect.Set(t.Context(), merchantTag(used.MerchantID)+"rotation:"+used.KeyID, 1_700_000_000_000, 400*24*time.Hour).Err())
	}
	must(t, s.Keys.WriteOverride(t.Context(), keystate.Override{Ref: keyRef(asks), Ended: true}))
	ends := func(of admission.Request, kind string) time.Duration {
		return inspect.PTTL(t.Context(), merchantTag(of.MerchantID)+kind+":"+of.KeyID).Val().Round(time.Hour)
	}
	for kind, kept := range map[string]time.Duration{"used": 90 * 24 * time.Hour, "rotation": 400 * 24 * time.Hour} {
		if got := ends(asks, kind); got != keystate.OverrideLifetime {
			t.Errorf("%s of the deleted ApiKey ends in %s", kind, got)
		}
		if got := ends(victim, kind); got != kept {
			t.Errorf("%s of another ApiKey ends in %s", kind, got)
		}
	}
}
