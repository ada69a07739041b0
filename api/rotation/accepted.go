package rotation

import (
	"net/url"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// AcceptedPath is the route that says which keys are accepted, and literally the path of its SubjectAccessReview.
const AcceptedPath = "/internal/v1/keys/accepted"

// MaxAccepted is the maximum number of ApiKeys in one request.
const MaxAccepted = 64

// AcceptedQuery returns the query that asks about a Merchant and at most MaxAccepted ApiKeys.
func AcceptedQuery(merchant types.UID, keys []types.UID) string {
	query := url.Values{"merchant": {string(merchant)}}
	for _, uid := range keys {
		query.Add("key", string(uid))
	}
	return query.Encode()
}

// Accepted is the answer: what is in force, whatever the specs say.
type Accepted struct {
	// MerchantState is the published state of the Merchant; empty: nothing is published of it.
	MerchantState v1alpha1.MerchantState `json:"merchantState,omitempty"`
	// Keys are the UIDs of those ApiKeys whose key passes authentication. Of a Merchant that is not Active it then gets 403.
	Keys []types.UID `json:"keys"`
}
