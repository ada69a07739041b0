package payments

import (
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// A redirect would take the key elsewhere.
func TestPayments_FollowNoRedirect(t *testing.T) {
	elsewhere := newFakeLedger(t, endedOn(closing, 1)...)
	f := newFakeLedger(t)
	f.answers = []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.url+r.URL.Path, http.StatusTemporaryRedirect)
	}}
	run(t, "payments list --key-env --day 2026-11-20").want(t, terminal.ExitError, "answers 307")
	if len(elsewhere.reads) > 0 {
		t.Error("it followed")
	}
}
