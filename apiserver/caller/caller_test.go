package caller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// A caller over the bound of wrong keys is decided here, all others by the script: both must say the same, in each state of directory and
// override.
func TestCaller_DecidesAsTheScript(t *testing.T) {
	kept := storetest.New(t, redistest.Start(t).URL())
	now := time.Now()
	later, over := now.Add(time.Hour), now.Add(-time.Hour)
	presented, other := apikey.NewDigest("presented"), apikey.NewDigest("other")
	known := published.Order{Issued: 5, Revision: 5}
	overrides := map[string]*keystate.Override{"no override": nil}
	for when, order := range map[string]published.Order{
		"older": {Issued: 5, Revision: 4}, "of an older issue": {Issued: 4, Revision: 9}, "as new": known, "newer": {Issued: 5, Revision: 6}, "of a newer issue": {Issued: 6, Revision: 1},
	} {
		for what, accepted := range map[string][]keystate.Accepted{
			"none":                      nil,
			"the key":                   {{Digest: presented}},
			"the key until later":       {{Digest: presented, Until: later}},
			"the key until before":      {{Digest: presented, Until: over}},
			"another":                   {{Digest: other}},
			"another, then the key":     {{Digest: other}, {Digest: presented, Until: later}},
			"another, then the old key": {{Digest: other}, {Digest: presented, Until: over}},
			"the key twice":             {{Digest: presented, Until: over}, {Digest: presented, Until: later}},
		} {
			overrides[fmt.Sprintf("an override that is %s and accepts %s", when, what)] = &keystate.Override{Order: order, Accepted: accepted}
		}
	}
	directories := map[string]func(*Caller){
		"refuses":        func(*Caller) {},
		"accepts":        func(c *Caller) { c.Accepted = true },
		"until later":    func(c *Caller) { c.Accepted, c.Until = true, later },
		"until before":   func(c *Caller) { c.Accepted, c.Until = true, over },
		"refused, ended": func(c *Caller) { c.Until = over },
	}
	// What a good key then gets 403 for decides nothing about the key.
	cases := map[string]func(*Caller){
		"permitted":            func(*Caller) {},
		"without permission":   func(c *Caller) { c.Permissions = 0 },
		"a suspended merchant": func(c *Caller) { c.Merchant.State = v1alpha1.MerchantSuspended },
	}
	states := 0
	for overriding, override := range overrides {
		for knows, change := range directories {
			for name, refuse := range cases {
				for _, currentOnly := range []bool{false, true} {
					states++
					id := published.ID(types.UID(fmt.Sprint("till", states)))
					from := Caller{currentOnly: currentOnly, needs: v1alpha1.PermissionRotate, Principal: directory.Principal{
						KeyID: id, Order: known, Digest: presented, Permissions: directory.NewPermissions(nil),
						Merchant: &directory.Merchant{ID: "merchant2345", State: v1alpha1.MerchantActive, RateLimit: v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 100_000}},
					}}
					change(&from)
					refuse(&from)
					ref := keystate.Ref{MerchantID: from.Merchant.ID, KeyID: id}
					if override != nil {
						written := *override
						written.Ref = ref
						if err := kept.Keys.WriteOverride(t.Context(), written); err != nil {
							t.Fatal(err)
						}
					}
					read, at, err := kept.Keys.Overrides(t.Context(), ref)
					if err != nil {
						t.Fatal(err)
					}
					if currentOnly {
						_, err = kept.AdmitRotation(t.Context(), from.Admission(), ratelimit.Policy{RequestsPerSecond: 1, Burst: 1})
					} else {
						_, err = kept.Admit(t.Context(), from.Admission())
					}
					want := from.admissionError()
					if !from.acceptedBy(read[0], at) {
						want = admission.ErrKeyRejected
					}
					if !errors.Is(err, want) {
						t.Errorf("%s, the directory %s, %s, current key only %t: the script says %v, the caller %v", overriding, knows, name, currentOnly, err, want)
					}
				}
			}
		}
	}
	if want := 41 * 5 * 3 * 2; states != want {
		t.Errorf("%d states, want %d", states, want)
	}
}
