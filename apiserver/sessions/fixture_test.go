package sessions_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/sessions"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

var sharedRedis *redistest.Server

func TestMain(m *testing.M) {
	redistest.Main(m, func(server *redistest.Server) { sharedRedis = server })
}

const path = "/api/v1/sessions"

// patience bounds every wait for something that takes milliseconds on an idle machine.
const patience = 30 * time.Second

type links struct{}

func (links) Header(id session.ID) string  { return "</pay/" + id.String() + `>; rel="payment"` }
func (links) Payload(id session.ID) string { return "pay://qr/" + id.String() }

// fixture is the room of merchants' sessions. The test publishes merchants and keys.
type fixture struct {
	*roomtest.Replica

	t testing.TB
}

func newFixture(t testing.TB, change ...func(*sessions.Options)) *fixture {
	t.Helper()
	return newFixtureOn(t, sharedRedis, change...)
}

func newFixtureOn(t testing.TB, redis *redistest.Server, change ...func(*sessions.Options)) *fixture {
	t.Helper()
	f := &fixture{Replica: roomtest.New(t, redis.URL()), t: t}
	options := sessions.Options{Store: f.Store, Gate: f.Gate, Links: links{}, Now: time.Now}
	for _, c := range change {
		c(&options)
	}
	h := sessions.New(options)
	read, list := v1alpha1.PermissionRead, v1alpha1.PermissionList
	f.Serve(openapitest.Public, web.Routes{
		path: {
			http.MethodGet:  sessions.ByQuery(f.Gate.WithKey(read, h.ListOrder), f.Gate.WithKey(read, h.ListReference), f.Gate.WithKey(list, h.ListEnded)),
			http.MethodPost: f.Gate.WithKey(v1alpha1.PermissionCreate, h.Create),
		},
		path + "/{id}":         {http.MethodGet: f.Gate.WithKey(read, h.Get)},
		path + "/{id}/cancel":  {http.MethodPost: f.Gate.WithKey(v1alpha1.PermissionCancel, h.Cancel)},
		path + "/{id}/refunds": {http.MethodPost: f.Gate.WithKey(v1alpha1.PermissionRefund, h.Refund)},
	})
	return f
}

// create creates a session of 12.50.
func (f *fixture) create(key string) (id string) {
	f.t.Helper()
	return f.Call(http.MethodPost, path, key, `{"amountCents": 1250}`).Want(f.t, http.StatusCreated).Text("sessionId")
}

// settleTest has test mode pay a session of 12.50.
func (f *fixture) settleTest(id, ref string) {
	f.t.Helper()
	parsed, err := session.ParseID(id)
	storetest.Must(f.t, err)
	_, err = f.SettleTest(f.t.Context(), parsed, storetest.Paid(ref))
	storetest.Must(f.t, err)
}

// goesBack has a rail confirm a refund.
func (f *fixture) goesBack(id string, refund session.Refund) {
	f.t.Helper()
	parsed, err := session.ParseID(id)
	storetest.Must(f.t, err)
	_, err = f.Refund(f.t.Context(), parsed, refund)
	storetest.Must(f.t, err)
}

// hold has a rail hold a session.
func (f *fixture) hold(id string) {
	f.t.Helper()
	parsed, err := session.ParseID(id)
	storetest.Must(f.t, err)
	_, err = f.Hold(f.t.Context(), parsed, store.Hold{Rail: storetest.Bank, Ref: "bank-1", Duration: time.Minute})
	storetest.Must(f.t, err)
}
