package keys

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	contract "github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// maxWatchAge is the age of the watch from which this replica does not say what is in force: another replica may know better. An idle watch is
// about a minute old at most.
const maxWatchAge = 2 * time.Minute

const (
	acceptedMerchantRule = "must be metadata.uid of the Merchant"
	acceptedKeyRule      = "must be metadata.uid of an ApiKey, at most 64 of them"
)

// ListAccepted responds with what is in force of a Merchant and of ApiKeys. The directory answers, which decides about requests too: so the
// response costs no read of the Kubernetes API, and knows each reason for which a key is refused. It is about key ids, whoever the source of their
// records is: a till presents a key id.
func (h *Handler) ListAccepted(_ *web.Event, w http.ResponseWriter, r *http.Request, _ string) error {
	query := r.URL.Query()
	merchant, asked := query.Get("merchant"), query["key"]
	switch {
	case merchant == "":
		return &session.FieldError{Field: "merchant", Rule: acceptedMerchantRule}
	case len(asked) > contract.MaxAccepted:
		return &session.FieldError{Field: "key", Rule: acceptedKeyRule}
	}
	if age := h.directory.Age(); age > maxWatchAge {
		return fmt.Errorf("%w: the watch of published objects is %s old", ErrKubernetes, age.Round(time.Second))
	}
	accepted := contract.Accepted{Keys: []types.UID{}}
	if found := h.directory.Merchant(published.ID(types.UID(merchant))); found != nil {
		accepted.MerchantState = found.State
	}
	for _, uid := range asked {
		if h.directory.Accepts(published.ID(types.UID(uid)), h.now()) {
			accepted.Keys = append(accepted.Keys, types.UID(uid))
		}
	}
	return web.Respond(w, http.StatusOK, accepted)
}
