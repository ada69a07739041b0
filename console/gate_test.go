package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// A hundred people of one tenant have four lists each, whose totals wait for that tenant's turn, or
// whose clients read nothing. The list of another tenant's person, and a page of its Merchant, are
// served at once.
func TestListInTurn_CrowdOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate{
			turns:  web.NewInflight(maxPages, maxPersonPages, errTooManyPages),
			unsent: web.NewInflight(maxUnsentPages, maxPersonPages, errTooManyPages), turnTimeout: defaultTurnTimeout,
		}
		goOn := make(chan struct{})
		list := g.listInTurn(func(_ *http.Request, viewer login.Person) ([]string, func(http.ResponseWriter) error, error) {
			tenant := viewer.Name
			return []string{tenant}, func(w http.ResponseWriter) error {
				if tenant == "crowd" {
					<-goOn
				}
				w.WriteHeader(http.StatusOK)
				return nil
			}, nil
		})
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		for n := range 400 {
			go func() { _ = list(httptest.NewRecorder(), request, login.Person{User: somebody(n / 4), Name: "crowd"}) }()
		}
		synctest.Wait()
		victim := login.Person{User: "oidc:alice", Name: "victim"}
		if err := list(httptest.NewRecorder(), request, victim); err != nil {
			t.Errorf("the list: %v", err)
		}
		page := g.inTurn(func(w http.ResponseWriter, _ *http.Request, _ login.Person) error {
			w.WriteHeader(http.StatusOK)
			return nil
		})
		request.SetPathValue("namespace", "victim")
		if err := page(httptest.NewRecorder(), request, victim); err != nil {
			t.Errorf("a page: %v", err)
		}
		close(goOn)
		synctest.Wait()
		wantIdle(t, g.turns, maxPages)
		wantIdle(t, g.unsent, maxUnsentPages)
	})
}
