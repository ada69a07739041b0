package console

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/authz"
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
		list := g.listInTurn(func(_ *http.Request, viewer login.Person) ([]client.ObjectKey, func(http.ResponseWriter) error, error) {
			tenant := viewer.Name
			return []client.ObjectKey{{Namespace: tenant, Name: "acme"}}, func(w http.ResponseWriter) error {
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
		list := g.listInTurn(func(_ *http.Request, viewer login.Person) ([]client.ObjectKey, func(http.ResponseWriter) error, error) {
			<-time.After(100 * time.Millisecond)
			return []client.ObjectKey{{Namespace: viewer.Name, Name: "acme"}}, func(w http.ResponseWriter) error {
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

// reviews is a Kubernetes API that allows everything until that is withdrawn.
type reviews struct {
	authorizationclient.SubjectAccessReviewInterface

	withdrawn *atomic.Bool
}

// Create decides about a review.
func (r reviews) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	review.Status.Allowed = !r.withdrawn.Load()
	return review, nil
}

// A hundred people could see a tenant's Merchants, and may not any more. Their lists, which find nothing, have no turns of the tenant: the list
// of a person who may see its Merchants is served at once.
func TestListInTurn_RightsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, goOn := newTestGate(), make(chan struct{})
		var withdrawn, crowded atomic.Bool
		g.rights = &rights.Reviewer{Reviews: authz.NewReviewer(reviews{withdrawn: &withdrawn}, time.Second, time.Now)}
		const alice = "oidc:alice"
		list := g.listInTurn(func(_ *http.Request, viewer login.Person) (found []client.ObjectKey, _ func(http.ResponseWriter) error, _ error) {
			if viewer.User == alice || !withdrawn.Load() {
				found = []client.ObjectKey{{Namespace: "victim", Name: "acme"}}
			} else if crowded.Load() {
				<-goOn
			}
			return found, func(w http.ResponseWriter) error { w.WriteHeader(http.StatusOK); return nil }, nil
		})
		load := func(user string) error {
			return list(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/?q=nothing", nil), login.Person{User: user})
		}
		const people = 100
		for _, after := range []func(){func() { withdrawn.Store(true) }, func() { crowded.Store(true) }} {
			for n := range people {
				if err := load(somebody(n)); err != nil {
					t.Fatal(err)
				}
			}
			after()
		}
		if err := load(alice); err != nil {
			t.Errorf("the first list: %v", err)
		}
		for n := range people * maxPersonPages {
			go func() { _ = load(somebody(n / maxPersonPages)) }()
		}
		synctest.Wait()
		if err := load(alice); err != nil {
			t.Errorf("the list: %v", err)
		}
		close(goOn)
		synctest.Wait()
		wantIdle(t, g.turns, maxPages)
	})
}

// slowReviews is a Kubernetes API that takes a second to say that only Alice may see Merchants.
type slowReviews struct {
	authorizationclient.SubjectAccessReviewInterface
}

// Create decides about a review.
func (slowReviews) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	<-time.After(time.Second)
	review.Status.Allowed = review.Spec.User == "oidc:alice"
	return review, nil
}

// A hundred strangers ask for pages of a tenant's Merchants, which they may not see. A page of a
// person who may is served at once.
func TestInTurn_Strangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTestGate()
		g.rights = &rights.Reviewer{Reviews: authz.NewReviewer(slowReviews{}, time.Minute, time.Now)}
		page := g.ifSeen(g.inTurn(func(w http.ResponseWriter, req *http.Request, viewer login.Person) error {
			if err := g.checkSeen(req.Context(), viewer, merchantKey(req)); err != nil {
				return err
			}
			w.WriteHeader(http.StatusOK)
			return nil
		}))
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.SetPathValue("namespace", "victim")
		request.SetPathValue("name", "acme")
		var strangers sync.WaitGroup
		for n := range 100 * maxPersonPages {
			strangers.Go(func() {
				err := page(httptest.NewRecorder(), request, login.Person{User: somebody(n / maxPersonPages)})
				if !errors.Is(err, web.ErrNotFound) {
					t.Errorf("a stranger gets %v", err)
				}
			})
		}
		<-time.After(time.Second / 2)
		if err := page(httptest.NewRecorder(), request, login.Person{User: "oidc:alice"}); err != nil {
			t.Errorf("the page: %v", err)
		}
		strangers.Wait()
		wantIdle(t, g.turns, maxPages)
	})
}
