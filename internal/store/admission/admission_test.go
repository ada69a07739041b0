package admission_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

type services = storetest.Services

// shared is the redis-server of every test that does not harm its server.
var shared *redistest.Server

func TestMain(m *testing.M) { redistest.Main(m, func(s *redistest.Server) { shared = s }) }

var (
	open        = storetest.New
	client      = storetest.Inspect
	merchant    = storetest.Merchant
	newID       = storetest.ID
	newDigest   = storetest.Digest
	newSession  = storetest.NewSession
	mustCreate  = storetest.MustCreate
	merchantTag = storetest.Tag
	must        = storetest.Must
	keyRef      = storetest.KeyRef
	write       = storetest.WriteOverride
	operations  = storetest.Operations
	limited     = storetest.Limited
	payer       = storetest.Payer
	lastUses    = storetest.LastUses
)

func second[T any](_ T, err error) error { return err }

// with returns a changed copy.
func with[T any](value T, change func(*T)) T {
	change(&value)
	return value
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	await.Until(t, storetest.Timeout, what, condition)
}

// allOperations are operations, and the rotation, which a key in its overlap may not do.
func allOperations() map[string]func(context.Context, *services, admission.Request) (admission.Admitted, error) {
	all := maps.Clone(operations)
	all["rotate"] = func(ctx context.Context, s *services, asks admission.Request) (admission.Admitted, error) {
		return s.AdmitRotation(ctx, asks, asks.Limit)
	}
	return all
}

func TestAdmit_DirectoryAndOverride(t *testing.T) {
	s := open(t, shared.URL())
	current, first, second := newDigest(), newDigest(), newDigest()
	now, err := s.Admit(t.Context(), merchant())
	if err != nil {
		t.Fatal(err)
	}
	list := func(accepted ...keystate.Accepted) *keystate.Override { return &keystate.Override{Accepted: accepted} }
	alone := list(keystate.Accepted{Digest: current})
	overlap := list(
		keystate.Accepted{Digest: current},
		keystate.Accepted{Digest: first, Until: now.Now.Add(time.Hour)},
		keystate.Accepted{Digest: second, Until: now.Now.Add(-time.Millisecond)},
	)
	twice := list(
		keystate.Accepted{Digest: first, Until: now.Now.Add(-time.Hour)},
		keystate.Accepted{Digest: first, Until: now.Now.Add(time.Hour)},
	)
	for _, test := range []struct {
		desc      string
		override  *keystate.Override // of revision 5
		knows     int64              // the revision this replica knows
		live      bool
		presented apikey.Digest
		accepted  bool
	}{
		{"no override, the directory accepts", nil, 5, true, current, true},
		{"no override, the directory rejects", nil, 5, false, current, false},

		{"an older override, the directory accepts what it does not list", alone, 6, true, newDigest(), true},
		{"an older override, the directory rejects what it lists", alone, 6, false, current, false},

		{"a newer override lists it, the directory does not know it yet", alone, 4, false, current, true},
		{"a newer override lists it, the directory accepts", alone, 4, true, current, true},
		{"a newer override does not list what the directory accepts", alone, 4, true, newDigest(), false},
		{"a newer override lists it until later", overlap, 4, true, first, true},
		{"a newer override lists it until later, the directory rejects", overlap, 4, false, first, true},
		{"a newer override lists it until the past", overlap, 4, true, second, false},
		{"a newer override lists it twice", twice, 4, true, first, true},
		{"a newer override lists others", overlap, 4, true, newDigest(), false},
		{"a newer override lists none", list(), 4, true, current, false},
		{"a newer override, and no directory at all", alone, 0, false, current, true},

		{"the same revision, both accept", alone, 5, true, current, true},
		{"the same revision, both accept the overlap", overlap, 5, true, first, true},
		{"the same revision, the key was deleted since", list(), 5, true, current, false},
		{"the same revision, the overlap is over by the clock of Redis", overlap, 5, true, second, false},
		{"the same revision, neither accepts", alone, 5, false, newDigest(), false},
	} {
		for name, operation := range operations {
			asks := with(merchant(), func(a *admission.Request) {
				a.Order.Revision, a.Accepted, a.Digest = test.knows, test.live, test.presented
			})
			if test.override != nil {
				override := *test.override
				override.MerchantID, override.KeyID, override.Order.Revision = asks.MerchantID, asks.KeyID, 5
				if err := s.Keys.WriteOverride(t.Context(), override); err != nil {
					t.Fatal(err)
				}
			}
			_, err := operation(t.Context(), s, asks)
			if test.accepted && err != nil {
				t.Errorf("%s: %s: %v, want it accepted", test.desc, name, err)
			}
			if !test.accepted && !errors.Is(err, admission.ErrKeyRejected) {
				t.Errorf("%s: %s: %v, want ErrKeyRejected", test.desc, name, err)
			}
		}
	}
}

// Where no override decides, the end of a key is judged by the clock of Redis, whatever that of the replica.
func TestAdmit_Until(t *testing.T) {
	for clock, ahead := range map[string]time.Duration{"right": 0, "an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		s := open(t, redistest.StartAhead(t, ahead).URL())
		now := time.Now().Add(ahead)
		for _, test := range []struct {
			name     string
			until    time.Time
			override *keystate.Override // of revision 5
			knows    int64
			accepted bool
		}{
			{"no end", time.Time{}, nil, 5, true},
			{"an end in a minute", now.Add(time.Minute), nil, 5, true},
			{"an end a minute ago", now.Add(-time.Minute), nil, 5, false},
			{"an end long ago", time.UnixMilli(1), nil, 5, false},
			{"an end in a minute, an older override", now.Add(time.Minute), &keystate.Override{}, 6, true},
			{"an end a minute ago, an older override", now.Add(-time.Minute), &keystate.Override{}, 6, false},
			{"an end in a minute, revoked", now.Add(time.Minute), &keystate.Override{}, 5, false},
			{"an end a minute ago, a later one since", now.Add(-time.Minute), &keystate.Override{Accepted: []keystate.Accepted{{Until: now.Add(time.Minute)}}}, 4, true},
		} {
			for name, operation := range operations {
				t.Run(clock+", "+test.name+", "+name, func(t *testing.T) {
					asks := merchant()
					asks.Order.Revision, asks.Accepted, asks.Until = test.knows, true, test.until
					if test.override != nil {
						override := *test.override
						override.Ref, override.Order.Revision = keyRef(asks), 5
						override.Accepted = slices.Clone(override.Accepted)
						for i := range override.Accepted {
							override.Accepted[i].Digest = asks.Digest
						}
						write(t, s, override)
					}
					if _, err := operation(t.Context(), s, asks); test.accepted != (err == nil) || err != nil && !errors.Is(err, admission.ErrKeyRejected) {
						t.Errorf("%v, want accepted %t", err, test.accepted)
					}
				})
			}
		}
	}
}

func TestAdmit_RevokedOnOtherReplica(t *testing.T) {
	s := open(t, shared.URL())
	for desc, presented := range map[string]apikey.Digest{"a live key": newDigest(), "no digest": {}} {
		for _, knows := range []int64{1, 5} {
			asks := with(merchant(), func(a *admission.Request) { a.Order.Revision, a.Digest = knows, presented })
			revoked := keystate.Override{Ref: keyRef(asks), Order: published.Order{Revision: 5}}
			if err := s.Keys.WriteOverride(t.Context(), revoked); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Admit(t.Context(), asks); !errors.Is(err, admission.ErrKeyRejected) {
				t.Errorf("%s, of revision %d: %v, want ErrKeyRejected", desc, knows, err)
			}
		}
	}
}

func TestAdmit_OrderOfResults(t *testing.T) {
	s := open(t, shared.URL())
	for name, operation := range allOperations() {
		asks := with(merchant(), func(a *admission.Request) { a.Limit = ratelimit.Policy{RequestsPerSecond: 1, Burst: 1} })
		dead := with(asks, func(a *admission.Request) { a.Accepted = false })
		inactive := with(asks, func(a *admission.Request) { a.Inactive = true })
		deadAndInactive := with(inactive, func(a *admission.Request) { a.Accepted = false })
		forbidden := with(asks, func(a *admission.Request) { a.Forbidden = true })
		deadAndForbidden := with(forbidden, func(a *admission.Request) { a.Accepted = false })
		inactiveAndForbidden := with(forbidden, func(a *admission.Request) { a.Inactive = true })
		reject := func(when string) {
			t.Helper()
			for _, test := range []struct {
				desc string
				asks admission.Request
				want error
			}{
				{"a dead key", dead, admission.ErrKeyRejected},
				{"a dead key of an inactive merchant", deadAndInactive, admission.ErrKeyRejected},
				{"a dead key without the permission", deadAndForbidden, admission.ErrKeyRejected},
				{"an inactive merchant", inactive, admission.ErrMerchantNotActive},
				{"a key without the permission", forbidden, admission.ErrForbidden},
				{"a key without the permission, of an inactive merchant", inactiveAndForbidden, admission.ErrMerchantNotActive},
			} {
				admitted, err := operation(t.Context(), s, test.asks)
				if !errors.Is(err, test.want) || admitted != (admission.Admitted{}) {
					t.Errorf("%s: %s, %s: %+v, %v; want nothing and %v", name, test.desc, when, admitted, err, test.want)
				}
				if uses, _ := lastUses(t, s, asks, time.Time{}); when == "before" && (uses == "") != errors.Is(test.want, admission.ErrKeyRejected) {
					t.Errorf("%s: after %s the uses are %q", name, test.desc, uses)
				}
			}
		}
		reject("before")
		// Had any of them been counted, the burst of one would be spent.
		if _, err := operation(t.Context(), s, asks); err != nil {
			t.Fatalf("%s: after rejected callers: %v", name, err)
		}
		eventually(t, name+" is over the limit", func() bool {
			_, err := operation(t.Context(), s, asks)
			return errors.Is(err, admission.ErrRateLimited)
		})
		reject("over the limit")
	}
}

// An override lists accepted keys, never their permissions: those are of the directory.
func TestAdmit_ForbiddenByOverride(t *testing.T) {
	s := open(t, shared.URL())
	for name, operation := range allOperations() {
		current, replaced := newDigest(), newDigest()
		asks := with(merchant(), func(a *admission.Request) { a.Order.Revision, a.Forbidden = 4, true })
		write(t, s, keystate.Override{Ref: keyRef(asks), Order: published.Order{Issued: asks.Order.Issued, Revision: 5}, Accepted: []keystate.Accepted{{Digest: current}}})
		for _, test := range []struct {
			desc      string
			live      bool
			presented apikey.Digest
			want      error
		}{
			{"a fresh key that the directory does not know", false, current, admission.ErrForbidden},
			{"a replaced key that the directory accepts", true, replaced, admission.ErrKeyRejected},
		} {
			request := with(asks, func(a *admission.Request) { a.Accepted, a.Digest = test.live, test.presented })
			if admitted, err := operation(t.Context(), s, request); !errors.Is(err, test.want) || admitted != (admission.Admitted{}) {
				t.Errorf("%s: %s: %+v, %v; want %v", name, test.desc, admitted, err, test.want)
			}
		}
	}
}

// A record that was put back has an older digest, whatever its revision: it never outranks an override that knows a newer one.
func TestAdmit_IssueTimeBeforeRevision(t *testing.T) {
	s := open(t, shared.URL())
	restored, current := newDigest(), newDigest()
	override := published.Order{Issued: 1_800_000_000_000, Revision: 1_800_000_000_000}
	for _, test := range []struct {
		desc      string
		knows     published.Order
		presented apikey.Digest
		live      bool
		accepted  bool
	}{
		{"older, with a fresh revision", published.Order{Issued: override.Issued - 1, Revision: override.Revision + 9}, restored, true, false},
		{"older, asked with the newest key", published.Order{Issued: override.Issued - 1, Revision: override.Revision + 9}, current, false, true},
		{"issued since, with a low revision", published.Order{Issued: override.Issued + 1, Revision: 1}, restored, true, true},
		{"issued since, asked with the dead key", published.Order{Issued: override.Issued + 1, Revision: 1}, current, false, false},
		{"of the same issue, changed since", published.Order{Issued: override.Issued, Revision: override.Revision + 1}, current, true, true},
	} {
		asks := with(merchant(), func(a *admission.Request) {
			a.Order, a.Accepted, a.Digest = test.knows, test.live, test.presented
		})
		write(t, s, keystate.Override{Ref: keyRef(asks), Order: override, Accepted: []keystate.Accepted{{Digest: current}}})
		for name, operation := range operations {
			if _, err := operation(t.Context(), s, asks); (err == nil) != test.accepted || (err != nil && !errors.Is(err, admission.ErrKeyRejected)) {
				t.Errorf("%s: %s: %v, want it accepted: %v", test.desc, name, err, test.accepted)
			}
		}
	}
}

// Rotations have a limit of their own, and the merchant's is not charged. What it rejects is not charged.
func TestAdmitRotation_Limit(t *testing.T) {
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	const burst = 5
	limit := ratelimit.Policy{RequestsPerSecond: 1, Burst: burst}
	asks := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: 1})
	began := time.Now()
	admitted := 0
	var denied admission.Admitted
	for n := range 40 {
		got, err := replicas[n%2].AdmitRotation(t.Context(), asks, limit)
		switch {
		case err == nil:
			admitted++
		case !errors.Is(err, admission.ErrRotationLimited) || !errors.Is(err, admission.ErrRateLimited):
			t.Fatal(err)
		default:
			denied = got
		}
	}
	if most := burst + int(time.Since(began)/time.Second) + 1; admitted < burst || admitted > most {
		t.Errorf("%d rotations were admitted, want %d to %d", admitted, burst, most)
	}
	if denied.RetryAfter <= 0 || denied.RetryAfter > time.Second || denied.Policy != limit {
		t.Errorf("a limited one gets %+v", denied.Quota)
	}
	if _, err := replicas[0].Admit(t.Context(), asks); err != nil {
		t.Errorf("another request with the key: %v", err)
	}
	other := with(asks, func(a *admission.Request) { a.KeyID = newID() })
	if _, err := replicas[0].AdmitRotation(t.Context(), other, limit); err != nil {
		t.Errorf("another key of the merchant: %v", err)
	}
	dead := with(asks, func(a *admission.Request) { a.Accepted = false })
	if _, err := replicas[0].AdmitRotation(t.Context(), dead, limit); !errors.Is(err, admission.ErrKeyRejected) {
		t.Errorf("a dead key: %v", err)
	}
	key := keyRef(asks)
	if _, err := replicas[0].LimitIssue(t.Context(), key, limit); err != nil {
		t.Errorf("a rotation on the internal port: %v", err)
	}
	lowered := ratelimit.Policy{RequestsPerSecond: 1000, Burst: 1}
	eventually(t, "a lowered limit lets one pass again", func() bool {
		_, err := replicas[0].AdmitRotation(t.Context(), asks, lowered)
		return err == nil
	})
}

// Only the current key is admitted and counted, whether this replica knows of the rotation or only the override does.
func TestAdmitRotation_CountsTheCurrentKeyOnly(t *testing.T) {
	s := open(t, shared.URL())
	limit := ratelimit.Policy{RequestsPerSecond: 1, Burst: 2}
	current := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: 1})
	current.Accepted = false // the directory of this replica is behind
	replaced := with(current, func(a *admission.Request) { a.Digest = newDigest() })
	override := keystate.Override{
		Ref:      keyRef(current),
		Order:    published.Order{Issued: current.Order.Issued + 1, Revision: current.Order.Revision + 1},
		Accepted: []keystate.Accepted{{Digest: current.Digest}, {Digest: replaced.Digest, Until: time.Now().Add(time.Hour)}},
	}
	if err := s.Keys.WriteOverride(t.Context(), override); err != nil {
		t.Fatal(err)
	}
	for name, asks := range map[string]admission.Request{
		"the override knows of the rotation":  with(replaced, func(a *admission.Request) { a.Accepted = true }),
		"the directory knows of the rotation": with(replaced, func(a *admission.Request) { a.Order.Issued = override.Order.Issued + 1 }),
		"both know of the rotation":           with(replaced, func(a *admission.Request) { a.Order = override.Order }),
	} {
		for range 10 {
			if _, err := s.AdmitRotation(t.Context(), asks, limit); !errors.Is(err, admission.ErrKeyRejected) {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	if _, err := s.Admit(t.Context(), replaced); err != nil {
		t.Errorf("another request with the replaced key: %v", err)
	}
	for range limit.Burst {
		if _, err := s.AdmitRotation(t.Context(), current, limit); err != nil {
			t.Errorf("the current key: %v", err)
		}
	}
}

// The quota must agree with the clock of Redis, whatever the machine's speed: one request comes
// back per second.
func TestLimit_Burst(t *testing.T) {
	s := open(t, shared.URL())
	asks := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: 600})
	first, err := s.Admit(t.Context(), asks)
	if err != nil {
		t.Fatal(err)
	}
	passed := int64(1)
	for {
		admitted, err := s.Admit(t.Context(), asks)
		elapsed := admitted.Now.Sub(first.Now)
		backlog := time.Duration(passed)*time.Second - elapsed
		if errors.Is(err, admission.ErrRateLimited) {
			if admitted.Remaining != 0 || admitted.Reset != backlog || admitted.RetryAfter != backlog-599*time.Second {
				t.Errorf("limited: %+v after %s, want reset %s", admitted.Quota, elapsed, backlog)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		passed++
		if backlog += time.Second; admitted.Reset != backlog || admitted.RetryAfter != 0 ||
			admitted.Remaining != int64((600*time.Second-backlog)/time.Second) {
			t.Fatalf("request %d: %+v after %s, want reset %s", passed, admitted.Quota, elapsed, backlog)
		}
		if passed > 600+int64(elapsed/time.Second) {
			t.Fatalf("%d requests passed in %s", passed, elapsed)
		}
	}
	if passed < 600 {
		t.Errorf("%d requests of a burst of 600 passed", passed)
	}
}

func TestLimit_RetryAfter(t *testing.T) {
	s := open(t, shared.URL())
	asks := limited(ratelimit.Policy{RequestsPerSecond: 20, Burst: 2})
	for range 3 { // three times over the limit and back
		var denied admission.Admitted
		eventually(t, "the limit is reached", func() bool {
			admitted, err := s.Admit(t.Context(), asks)
			denied = admitted
			return errors.Is(err, admission.ErrRateLimited)
		})
		if denied.RetryAfter <= 0 || denied.RetryAfter > 50*time.Millisecond {
			t.Fatalf("retry after %s at 20 requests per second", denied.RetryAfter)
		}
		eventually(t, "a request passes again", func() bool {
			admitted, err := s.Admit(t.Context(), asks)
			waited := admitted.Now.Sub(denied.Now)
			if passed := err == nil; passed != (waited >= denied.RetryAfter) {
				t.Fatalf("retry after %s, waited %s, passed: %v", denied.RetryAfter, waited, passed)
			}
			return err == nil
		})
	}
}

// The promise to the platform, under concurrency over two replicas: in any stretch of time by the clock
// of Redis, no more than the burst and the rate times the stretch pass.
func TestLimit_NeverExceedsBurstAndRate(t *testing.T) {
	replicas := []*services{open(t, shared.URL()), open(t, shared.URL())}
	rapid.Check(t, func(t *rapid.T) {
		limit := ratelimit.Policy{
			RequestsPerSecond: rapid.Int64Range(1, 10_000).Draw(t, "rate"), Burst: rapid.Int64Range(1, 40).Draw(t, "burst"),
		}
		asks := limited(limit)
		var mu sync.Mutex
		var first, last time.Time
		passed := int64(0)
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Go(func() {
				for range 30 {
					admitted, err := replicas[i%2].Admit(t.Context(), asks)
					if errors.Is(err, admission.ErrRateLimited) {
						continue
					}
					mu.Lock()
					if err != nil {
						t.Error(err)
					}
					passed++
					if first.IsZero() || admitted.Now.Before(first) {
						first = admitted.Now
					}
					if admitted.Now.After(last) {
						last = admitted.Now
					}
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		if most := limit.Burst + int64(last.Sub(first)/limit.Interval()); passed > most {
			t.Fatalf("%+v: %d passed in %s, at most %d may", limit, passed, last.Sub(first), most)
		}
		if least := min(limit.Burst, 120); passed < least {
			t.Fatalf("%+v: %d passed, and a burst of %d must", limit, passed, least)
		}
	})
}

func TestLimit_OnePerCaller(t *testing.T) {
	s := open(t, shared.URL())
	one := ratelimit.Policy{RequestsPerSecond: 1, Burst: 1}
	id := mustCreate(t, s, merchant(), newSession()).Session.ID
	for range 3 {
		if _, err := s.Admit(t.Context(), limited(one)); err != nil {
			t.Errorf("another merchant: %v", err)
		}
		reader := with(payer(), func(p *store.PublicAdmission) { p.Limit = one })
		if _, _, err := s.PublicSession(t.Context(), reader, id); err != nil {
			t.Errorf("another payer: %v", err)
		}
	}
}

func TestLimit_SharedByKeysOfMerchant(t *testing.T) {
	s := open(t, shared.URL())
	asks := limited(ratelimit.Policy{RequestsPerSecond: 1, Burst: 1})
	second := with(asks, func(a *admission.Request) { a.KeyID, a.Digest = newID(), newDigest() })
	eventually(t, "what one key spends, the other lacks", func() bool {
		if _, err := s.Admit(t.Context(), asks); err != nil && !errors.Is(err, admission.ErrRateLimited) {
			t.Fatal(err)
		}
		_, err := s.Admit(t.Context(), second)
		return errors.Is(err, admission.ErrRateLimited)
	})
}

// A lowered limit, or a failover to a server whose clock is behind, leaves a debt that is larger than a
// burst. It must not lock the merchant out for longer than one burst takes, and a surcharge.
func TestLimit_TATBeyondBurstIsCut(t *testing.T) {
	s := open(t, shared.URL())
	asks := limited(ratelimit.Policy{RequestsPerSecond: 100, Burst: 3})
	key := merchantTag(asks.MerchantID) + "rate:" + asks.MerchantID
	now, err := s.Admit(t.Context(), merchant())
	if err != nil {
		t.Fatal(err)
	}
	client(t, shared).Set(t.Context(), key, now.Now.Add(time.Hour).UnixMicro(), time.Hour)

	denied, err := s.Admit(t.Context(), asks)
	if !errors.Is(err, admission.ErrRateLimited) || denied.RetryAfter != 1010*time.Millisecond || denied.Reset != 1030*time.Millisecond {
		t.Errorf("%+v, %v; want ErrRateLimited with one interval and a second to wait", denied.Quota, err)
	}
	eventually(t, "the merchant passes again", func() bool {
		_, err := s.Admit(t.Context(), asks)
		return err == nil
	})
}

func TestLimit_EntryExpires(t *testing.T) {
	s := open(t, shared.URL())
	asks := with(merchant(), func(a *admission.Request) { a.Limit.RequestsPerSecond = 200 })
	if _, err := s.Admit(t.Context(), asks); err != nil {
		t.Fatal(err)
	}
	c := client(t, shared)
	key := merchantTag(asks.MerchantID) + "rate:" + asks.MerchantID
	eventually(t, "the limiter's entry is gone", func() bool { return c.Exists(t.Context(), key).Val() == 0 })
}

func TestAdmit_UnreadableOverride(t *testing.T) {
	s := open(t, shared.URL())
	c := client(t, shared)
	for _, text := range []string{"", "-", "garbage", "5", "5 ", "-5 abc", "5x abc", "{}"} {
		asks := merchant()
		if err := c.Set(t.Context(), merchantTag(asks.MerchantID)+"key:"+asks.KeyID, text, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		for name, operation := range operations {
			if admitted, err := operation(t.Context(), s, asks); !errors.Is(err, redis.ErrCorrupt) || admitted != (admission.Admitted{}) {
				t.Errorf("override %q: %s: %+v, %v; want ErrCorrupt", text, name, admitted, err)
			}
		}
	}
}

func TestScripts_DeclareTheirKeys(t *testing.T) {
	server := redistest.Start(t)
	s, asks := open(t, server.URL()), merchant()
	storetest.CheckDeclared(t, server, func() {
		must(t, second(s.Admit(t.Context(), asks)))
		must(t, second(s.Admit(t.Context(), with(asks, func(a *admission.Request) { a.Digest = newDigest() })))) // its last use is written
		_, _ = s.Admit(t.Context(), with(asks, func(a *admission.Request) { a.Limit.Burst = 1 }))                // it may be refused
		limit := ratelimit.Policy{RequestsPerSecond: 1, Burst: 100}
		must(t, second(s.AdmitRotation(t.Context(), asks, limit)))
		must(t, second(s.LimitIssue(t.Context(), keyRef(asks), limit)))
	})
}

func TestScripts_FullRedis(t *testing.T) {
	limit := ratelimit.Policy{RequestsPerSecond: 1, Burst: 10}
	storetest.CheckFull(t, redistest.Start(t), []storetest.FullCase{
		{Name: "first request", Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			return func() error { return second(s.Admit(t.Context(), asks)) }
		}},
		{Name: "later request", Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			must(t, second(s.Admit(t.Context(), asks)))
			return func() error { return second(s.Admit(t.Context(), asks)) }
		}},
		{Name: "rotation by the key", Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			return func() error { return second(s.AdmitRotation(t.Context(), asks, limit)) }
		}},
		{Name: "rotation on the internal port", Arrange: func(t *testing.T, s *services, asks admission.Request) func() error {
			t.Helper()
			return func() error { return second(s.LimitIssue(t.Context(), keyRef(asks), limit)) }
		}},
	})
}
