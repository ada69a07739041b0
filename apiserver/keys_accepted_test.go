package apiserver_test

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// accepted asks which of the ApiKeys are accepted.
func (r *replica) accepted(token string, merchant types.UID, keys ...types.UID) result {
	r.t.Helper()
	return r.internally(http.MethodGet, rotation.AcceptedPath+"?"+rotation.AcceptedQuery(merchant, keys), token, "")
}

// The response agrees with what requests with the keys get.
func TestListAccepted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	console, rotator := f.account("console"), f.issuer("rotator")
	f.allow("console", rotation.AcceptedPath, rotation.AcceptedPath, "get")
	r := f.start()
	merchant, till := types.UID(f.namespace+"/acme"), types.UID(f.namespace+"/till")
	r.accepted("", merchant, till).want(t, http.StatusUnauthorized)
	r.accepted(rotator, merchant, till).want(t, http.StatusForbidden)
	if got := r.accepted(console, merchant, till).want(t, http.StatusOK); len(got.body["keys"].([]any)) != 1 || got.text("merchantState") != "Active" {
		t.Errorf("of a key that works: %s", got.raw)
	}
	f.change(key, func(record *published.KeyRecord) { record.State = v1alpha1.ApiKeyDisabled })
	eventually(t, "the key is refused", func() bool { return len(r.accepted(console, merchant, till).body["keys"].([]any)) == 0 })
	r.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
}
