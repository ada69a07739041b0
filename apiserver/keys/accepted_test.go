package keys_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// accepted asks which of the ApiKeys are accepted.
func (f *fixture) accepted(merchant types.UID, keys ...types.UID) roomtest.Result {
	f.t.Helper()
	return f.Call(http.MethodGet, rotation.AcceptedPath+"?"+rotation.AcceptedQuery(merchant, keys), console, "")
}

// The response agrees with what requests with the keys get, whatever the reason is for which a key is refused.
func TestListAccepted(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme").MerchantID
	keys := map[types.UID]string{}
	var active, gone published.KeyRecord
	keys["active"], active = f.key("active", acme)
	keys["deleted"], gone = f.key("deleted", acme)
	f.deleted(gone)
	keys["disabled"], _ = f.key("disabled", acme, disabled)
	keys["expired"], _ = f.key("expired", acme, func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(-time.Minute)) })
	keys["of missing"], _ = f.key("of missing", published.ID("missing"))
	keys["of suspended"], _ = f.key("of suspended", f.merchant("suspended", suspended).MerchantID)
	test, issued := roomtest.NewTestKey(t, "of test mode", "of test mode", acme)
	f.PublishKey(issued)
	keys["of test mode"] = test.Reveal()
	keys["revoked"], _ = f.key("revoked", acme, func(r *published.KeyRecord) { r.Revoked = true })

	uids, passing := slices.Sorted(maps.Keys(keys)), []types.UID{"active", "of suspended", "of test mode"}
	for merchant, want := range map[types.UID]v1alpha1.MerchantState{"acme": v1alpha1.MerchantActive, "suspended": v1alpha1.MerchantSuspended, "none": ""} {
		var got rotation.Accepted
		storetest.Must(t, json.Unmarshal(f.accepted(merchant, append(uids, "never published")...).Want(t, http.StatusOK).Raw, &got))
		if got.MerchantState != want || !slices.Equal(got.Keys, passing) {
			t.Errorf("%s: %+v, want state %q and %v", merchant, got, want, passing)
		}
	}

	// A key that the operator disables is not accepted any more.
	active.Revision++
	disabled(&active)
	f.UpdateKey(active)
	if got := f.accepted("acme", "active").Want(t, http.StatusOK); len(got.Body["keys"].([]any)) != 0 {
		t.Errorf("disabled: %s", got.Raw)
	}

	const me = "/api/v1/merchant/me"
	f.Serve(openapitest.Public, web.Routes{me: {http.MethodGet: f.Gate.WithKey(v1alpha1.PermissionRead, f.Gate.Me)}})
	for _, uid := range uids {
		want := slices.Contains(passing, uid) && uid != "active"
		if got := f.Call(http.MethodGet, me, keys[uid], "").Status; (got != http.StatusUnauthorized) != want {
			t.Errorf("%s: a request gets %d", uid, got)
		}
	}
}

func disabled(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled }

func TestListAccepted_Invalid(t *testing.T) {
	f := newFixture(t)
	f.merchant("acme")
	f.accepted("").WantCode(t, http.StatusBadRequest, "invalid_request")
	f.accepted("acme", make([]types.UID, rotation.MaxAccepted+1)...).WantCode(t, http.StatusBadRequest, "invalid_request")
	f.accepted("acme", make([]types.UID, rotation.MaxAccepted)...).Want(t, http.StatusOK)
}
