package console

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/lru"

	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// newTestGate returns a gate that lets pages take turns.
func newTestGate() *gate {
	return &gate{
		turns:  web.NewInflight(maxPages, maxPersonPages, errTooManyPages),
		unsent: web.NewInflight(maxUnsentPages, maxPersonPages, errTooManyPages),
		shown:  lru.New(maxShown), turnTimeout: defaultTurnTimeout,
	}
}

// A hundred people of one tenant have four lists each, whose totals wait for that tenant's turn, or
// whose clients read nothing. The list of another tenant's person, and a page of its Merchant, are
// served at once.
func TestListInTurn_CrowdOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate()
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

// A hundred people of one tenant load their lists without a pause, with four connections each, and
// it takes a while to find one. The list of another tenant's person who was here before is served.
func TestListInTurn_CrowdLoadsLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate()
		list := g.listInTurn(func(_ *http.Request, viewer login.Person) ([]string, func(http.ResponseWriter) error, error) {
			<-time.After(100 * time.Millisecond)
			return []string{viewer.Name}, func(w http.ResponseWriter) error {
				w.WriteHeader(http.StatusOK)
				return nil
			}, nil
		})
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		victim := login.Person{User: "oidc:alice", Name: "victim"}
		if err := list(httptest.NewRecorder(), request, victim); err != nil {
			t.Fatalf("the list, when nobody else loads one: %v", err)
		}
		var crowd sync.WaitGroup
		ended := make(chan struct{})
		for n := range 100 * maxPersonPages {
			crowd.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
						_ = list(httptest.NewRecorder(), request, login.Person{User: somebody(n / maxPersonPages), Name: "crowd"})
					}
				}
			})
		}
		<-time.After(time.Minute)
		for range 20 {
			if err := list(httptest.NewRecorder(), request, victim); err != nil {
				t.Errorf("the list: %v", err)
			}
		}
		close(ended)
		crowd.Wait()
		wantIdle(t, g.turns, maxPages)
	})
}
