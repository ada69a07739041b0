package apiserver_test

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
	"github.com/merchant-operator/merchant-operator/test/await"
)

// accepted asks which of the ApiKeys are accepted.
func (r *replica) accepted(token string, merchant types.UID, keys ...types.UID) result {
	r.t.Helper()
	return r.internally(http.MethodGet, rotation.AcceptedPath+"?"+rotation.AcceptedQuery(merchant, keys), token, "")
}

// The response agrees with what requests with the keys get, whatever the reason is for which a key is refused.
func TestListAccepted(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	suspended := f.merchant("suspended", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantSuspended })
	missing := published.MerchantRecord{MerchantID: published.ID("missing")}
	keys := map[string]string{
		"active":       f.key("active", acme),
		"disabled":     f.key("disabled", acme, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled }),
		"revoked":      f.key("revoked", acme, func(r *published.KeyRecord) { r.Revoked = true }),
		"expired":      f.key("expired", acme, func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(-time.Minute)) }),
		"of suspended": f.key("of suspended", suspended),
		"of missing":   f.key("of missing", missing),
		"of test mode": f.testKey("of test mode", acme),
	}
	keys["deleted"] = f.key("deleted", acme)
	f.writeTombstone(f.keySecret(keys["deleted"]))
	token := f.account("console")
	f.allow("console", rotation.AcceptedPath, rotation.AcceptedPath, "get")
	r := f.start()

	var uids, passing []types.UID
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		uid := types.UID(f.namespace + "/" + name)
		uids = append(uids, uid)
		switch status := r.call(http.MethodGet, me, keys[name], "").status; status {
		case http.StatusOK, http.StatusForbidden:
			passing = append(passing, uid)
		case http.StatusUnauthorized:
		default:
			t.Fatalf("%s: %d", name, status)
		}
	}
	uids = append(uids, "never published")
	for merchant, want := range map[string]v1alpha1.MerchantState{"acme": v1alpha1.MerchantActive, "suspended": v1alpha1.MerchantSuspended, "none": ""} {
		got := r.accepted(token, types.UID(f.namespace+"/"+merchant), uids...).want(t, http.StatusOK)
		var answer rotation.Accepted
		text, err := json.Marshal(got.body)
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil || answer.MerchantState != want || !slices.Equal(answer.Keys, passing) {
			t.Errorf("%s: %+v, want state %q and %v", merchant, answer, want, passing)
		}
	}
	if len(passing) != 3 {
		t.Errorf("%v pass", passing)
	}

	// A key that the operator disables is not accepted any more.
	f.change(keys["active"], func(record *published.KeyRecord) { record.State = v1alpha1.ApiKeyDisabled })
	await.Until(t, patience, "the key is refused", func() bool {
		return len(r.accepted(token, types.UID(f.namespace+"/acme"), types.UID(f.namespace+"/active")).body["keys"].([]any)) == 0
	})
	r.call(http.MethodGet, me, keys["active"], "").want(t, http.StatusUnauthorized)
}

func TestListAccepted_Refused(t *testing.T) {
	f := newFixture(t)
	f.merchant("acme")
	console, rotator := f.account("console"), f.issuer("rotator")
	f.allow("console", rotation.AcceptedPath, rotation.AcceptedPath, "get")
	r := f.start()
	for name, test := range map[string]struct {
		got    result
		status int
	}{
		"without a token":           {r.accepted("", "acme"), http.StatusUnauthorized},
		"an account that rotates":   {r.accepted(rotator, "acme"), http.StatusForbidden},
		"no merchant":               {r.accepted(console, ""), http.StatusBadRequest},
		"too many keys":             {r.accepted(console, "acme", make([]types.UID, rotation.MaxAccepted+1)...), http.StatusBadRequest},
		"as many keys as permitted": {r.accepted(console, "acme", make([]types.UID, rotation.MaxAccepted)...), http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) { test.got.want(t, test.status) })
	}
}
