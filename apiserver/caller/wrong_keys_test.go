package caller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/coalesce"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// asker is one who presents a key that the directory does not accept.
func asker(keyID, plaintext string) Caller {
	return Caller{Principal: directory.Principal{
		KeyID: keyID, Order: published.Order{Issued: 5, Revision: 5}, Digest: apikey.NewDigest(plaintext),
		Permissions: directory.NewPermissions(nil), Merchant: &directory.Merchant{ID: "merchant2345", State: v1alpha1.MerchantActive},
	}, needs: v1alpha1.PermissionCreate}
}

// overriding returns a memory beside a Redis with one override, and how often that was read.
func overriding(override keystate.Override) (keys *wrongKeys, reads *int) {
	reads = new(int)
	return &wrongKeys{
		limit: ratelimit.NewLimiter(wrongKeyLimit, time.Now), reads: coalesce.NewReads[readOverride](),
		uses: ratelimit.NewLimiter(useLimit, time.Now), useDue: func(apikey.Digest) bool { return false },
		read: func(context.Context, ...keystate.Ref) ([]keystate.Override, time.Time, error) {
			*reads++
			return []keystate.Override{override}, time.Now(), nil
		},
	}, reads
}

func (k *wrongKeys) exhaust(keyID string) {
	for k.charge(keyID) {
	}
}

// A good key is not charged for.
func TestWrongKeys_GoodKeyIsNotCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, reads := overriding(keystate.Override{})
		for range 1000 {
			charged, err := keys.check(t.Context(), asker("till", "fresh"))
			if !charged || err != nil {
				t.Fatalf("charged %v, %v", charged, err)
			}
			keys.refund("till")
		}
		if *reads != 0 {
			t.Errorf("%d reads", *reads)
		}
	})
}

// Wrong keys of a key ID are asked about up to a bound.
func TestWrongKeys_Bound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, reads := overriding(keystate.Override{})
		asked := 0
		ask := func() {
			before := *reads
			if charged, err := keys.check(t.Context(), asker("till", "wrong")); charged {
				asked++
			} else if err == nil || *reads == before {
				t.Fatalf("neither asked about nor refused: %v, %d reads", err, *reads-before)
			}
		}
		for range 300 {
			ask()
		}
		// The reads of the 200 behind the burst took 20 s, in which ten more a second may be asked about.
		if asked < 100 || asked > 300 {
			t.Errorf("%d of 300 were asked about", asked)
		}
		if *reads == 0 || *reads > 200 {
			t.Errorf("%d reads", *reads)
		}
		if charged, err := keys.check(t.Context(), asker("other", "wrong")); !charged || err != nil {
			t.Errorf("another key id: charged %v, %v", charged, err)
		}
		live := asker("till", "good")
		live.Live = true
		before := *reads
		if charged, err := keys.check(t.Context(), live); charged || err != nil || *reads != before {
			t.Errorf("a key that the directory accepts: charged %v, %v, %d reads", charged, err, *reads-before)
		}
	})
}

// Nothing is charged for a 403, so who has a good key could send any number of such requests to Redis. Past a bound they share reads, and a key
// that another replica has just replaced still gets 401.
func TestWrongKeys_RefusedRequestsOfGoodKeys(t *testing.T) {
	forbidden, inactive := asker("till", "good"), asker("till", "good")
	forbidden.Permissions = directory.NewPermissions([]v1alpha1.Permission{v1alpha1.PermissionRead})
	inactive.Merchant.State = v1alpha1.MerchantSuspended
	replaced := keystate.Override{Order: published.Order{Issued: 6, Revision: 6}, Accepted: []keystate.Accepted{{Digest: apikey.NewDigest("next")}}}
	for name, test := range map[string]struct {
		from     Caller
		override keystate.Override
		want     error
	}{
		"no permission":                          {forbidden, keystate.Override{}, admission.ErrForbidden},
		"a suspended merchant":                   {inactive, keystate.Override{}, admission.ErrMerchantNotActive},
		"a replaced key without permission":      {forbidden, replaced, admission.ErrKeyRejected},
		"a replaced key of a suspended merchant": {inactive, replaced, admission.ErrKeyRejected},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				keys, reads := overriding(test.override)
				test.from.Live, test.from.Accepted = true, true
				asked, refused := 0, 0
				for range 300 {
					switch charged, err := keys.check(t.Context(), test.from); {
					case charged:
						t.Fatal("it would be refunded")
					case err == nil: // the script of the request refuses it
						asked++
					case errors.Is(err, test.want):
						refused++
					default:
						t.Fatal(err)
					}
				}
				if asked < 100 || refused == 0 || *reads == 0 || *reads > refused {
					t.Errorf("%d were asked about, %d refused with %d reads", asked, refused, *reads)
				}
				keys.useDue = func(apikey.Digest) bool { return true }
				if charged, err := keys.check(t.Context(), test.from); charged || err != nil {
					t.Errorf("a request that is to show a use of the key: charged %t, %v", charged, err)
				}
				permitted := asker("till", "good")
				permitted.Live, permitted.Accepted = true, true
				before := *reads
				if charged, err := keys.check(t.Context(), permitted); charged || err != nil || *reads != before {
					t.Errorf("another request of the key: charged %t, %v, %d reads", charged, err, *reads-before)
				}
			})
		})
	}
}

// While Redis does not answer, each use is due again and again. A key that gets 403 shows its use once a second past the bound.
func TestWrongKeys_UsesDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, _ := overriding(keystate.Override{})
		keys.useDue = func(apikey.Digest) bool { return true }
		from := asker("till", "good")
		from.Live, from.Accepted = true, true
		from.Permissions = directory.NewPermissions([]v1alpha1.Permission{v1alpha1.PermissionRead})
		for range 3 {
			keys.exhaust("till")
			if charged, err := keys.check(t.Context(), from); charged || err != nil {
				t.Errorf("its use: charged %t, %v", charged, err)
			}
			if _, err := keys.check(t.Context(), from); !errors.Is(err, admission.ErrForbidden) {
				t.Errorf("another use within a second: %v", err)
			}
			<-time.After(time.Second)
		}
	})
}

// Past the bound many share one read.
func TestWrongKeys_SharedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fresh := keystate.Override{
			Order:    published.Order{Issued: 6, Revision: 6},
			Accepted: []keystate.Accepted{{Digest: apikey.NewDigest("fresh")}, {Digest: apikey.NewDigest("over"), Until: time.Now()}},
		}
		keys, reads := overriding(fresh)
		outcomes := map[string]error{}
		for _, presented := range []string{"wrong", "fresh", "over"} {
			keys.exhaust("till")
			results := make(chan error)
			for range 100 {
				go func() {
					_, err := keys.check(t.Context(), asker("till", presented))
					results <- err
				}()
			}
			for range 100 {
				outcomes[presented] = <-results
			}
		}
		if *reads != 3 {
			t.Errorf("%d reads for three hundreds of callers, want 3", *reads)
		}
		if outcomes["fresh"] != nil || !errors.Is(outcomes["wrong"], admission.ErrKeyRejected) || !errors.Is(outcomes["over"], admission.ErrKeyRejected) {
			t.Errorf("the outcomes are %v", outcomes)
		}
	})
}

// Where only the current key may ask, a replaced one is a wrong key past the bound, too.
func TestWrongKeys_CurrentKeyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, _ := overriding(keystate.Override{
			Order:    published.Order{Issued: 6, Revision: 6},
			Accepted: []keystate.Accepted{{Digest: apikey.NewDigest("current")}, {Digest: apikey.NewDigest("replaced"), Until: time.Now().Add(time.Hour)}},
		})
		for presented, accepted := range map[string]bool{"current": true, "replaced": false} {
			keys.exhaust("till")
			from := asker("till", presented)
			from.currentOnly = true
			if _, err := keys.check(t.Context(), from); (err == nil) != accepted {
				t.Errorf("%s: %v", presented, err)
			}
		}
		keys.exhaust("till")
		if _, err := keys.check(t.Context(), asker("till", "replaced")); err != nil {
			t.Errorf("replaced, elsewhere: %v", err)
		}
	})
}

// An override that is history opens nothing.
func TestWrongKeys_OldOverride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, _ := overriding(keystate.Override{
			Order: published.Order{Issued: 4, Revision: 9}, Accepted: []keystate.Accepted{{Digest: apikey.NewDigest("old")}},
		})
		keys.exhaust("till")
		if _, err := keys.check(t.Context(), asker("till", "old")); !errors.Is(err, admission.ErrKeyRejected) {
			t.Errorf("got %v", err)
		}
	})
}
