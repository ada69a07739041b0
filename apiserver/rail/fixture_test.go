package rail_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver/rail"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

var sharedRedis *redistest.Server

func TestMain(m *testing.M) {
	redistest.Main(m, func(server *redistest.Server) { sharedRedis = server })
}

// The accounts of two rails.
const (
	bank = "system:serviceaccount:rails:bank"
	card = "system:serviceaccount:rails:card"
)

// fixture is the room of rails of one replica, which knows the merchant acme. Sessions are of 12.50 EUR.
type fixture struct {
	*roomtest.Replica

	t     *testing.T
	redis *redistest.Server
	acme  published.MerchantRecord
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, sharedRedis)
}

func newFixtureOn(t *testing.T, redis *redistest.Server) *fixture {
	t.Helper()
	f := newReplica(t, redis)
	f.acme = f.Merchant("acme")
	return f
}

// other returns another replica on the same Redis.
func (f *fixture) other() *fixture {
	f.t.Helper()
	other := newReplica(f.t, f.redis)
	other.acme = f.acme
	other.PublishMerchant(f.acme)
	return other
}

func newReplica(t *testing.T, redis *redistest.Server) *fixture {
	t.Helper()
	f := &fixture{Replica: roomtest.New(t, redis.URL()), t: t, redis: redis}
	h := rail.New(rail.Options{Store: f.Store, Directory: f.Directory, Gate: f.Gate, Log: f.Log, Registerer: f.Registry})
	f.Serve(openapitest.Internal, web.Routes{
		"/internal/v1/sessions/{id}":            {http.MethodGet: roomtest.AsAccount(h.Get)},
		"/internal/v1/sessions/{id}/hold":       {http.MethodPost: roomtest.AsAccount(h.Hold)},
		"/internal/v1/sessions/{id}/settlement": {http.MethodPost: roomtest.AsAccount(h.Settle)},
		"/internal/v1/sessions/{id}/refunds":    {http.MethodPost: roomtest.AsAccount(h.Refund)},
		"/internal/v1/refunds":                  {http.MethodGet: roomtest.AsAccount(h.ListOwed)},
	})
	return f
}

// asks returns the admission of a merchant's request.
func asks(merchant published.MerchantRecord) admission.Request {
	asks := storetest.Merchant()
	asks.MerchantID = merchant.MerchantID
	return asks
}

// create creates a session of acme.
func (f *fixture) create() (id string) {
	f.t.Helper()
	return f.createOf(f.acme)
}

func (f *fixture) createOf(merchant published.MerchantRecord, change ...func(*store.NewSession)) (id string) {
	f.t.Helper()
	request := storetest.NewSession()
	request.MerchantName = merchant.DisplayName
	for _, c := range change {
		c(&request)
	}
	return storetest.MustCreate(f.t, f.Services, asks(merchant), request).Session.ID.String()
}

// createTest creates a session of acme in test mode.
func (f *fixture) createTest() (id string) {
	f.t.Helper()
	request := asks(f.acme)
	request.TestMode = true
	return storetest.MustCreate(f.t, f.Services, request, storetest.NewSession()).Session.ID.String()
}

// unknownID is of no session of acme.
func (f *fixture) unknownID() string { return session.NewID(f.acme.MerchantID, false).String() }

// session reads a session of acme as its merchant.
func (f *fixture) session(id string) session.Session {
	f.t.Helper()
	parsed, err := session.ParseID(id)
	storetest.Must(f.t, err)
	_, sess, err := f.Session(f.t.Context(), asks(f.acme), parsed)
	storetest.Must(f.t, err)
	return sess
}

// cancel has acme cancel a session.
func (f *fixture) cancel(id string) error {
	f.t.Helper()
	parsed, err := session.ParseID(id)
	storetest.Must(f.t, err)
	_, _, err = f.Cancel(f.t.Context(), asks(f.acme), parsed)
	return err
}

// events returns the newest 200 events of acme, the oldest first.
func (f *fixture) events() []store.FeedEntry {
	f.t.Helper()
	_, page, err := f.Feed(f.t.Context(), asks(f.acme), feed.Cursor{}, 200)
	storetest.Must(f.t, err)
	return page.Entries
}

func (f *fixture) get(id, account string) roomtest.Result {
	f.t.Helper()
	return f.Call(http.MethodGet, "/internal/v1/sessions/"+id, account, "")
}

func (f *fixture) hold(id, account, body string) roomtest.Result {
	f.t.Helper()
	return f.Call(http.MethodPost, "/internal/v1/sessions/"+id+"/hold", account, body)
}

func (f *fixture) settle(id, account, body string) roomtest.Result {
	f.t.Helper()
	return f.Call(http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", account, body)
}

func (f *fixture) refund(id, account, body string) roomtest.Result {
	f.t.Helper()
	return f.Call(http.MethodPost, "/internal/v1/sessions/"+id+"/refunds", account, body)
}

// paid and failure are reports of one payment, "bank-1".
func paid(amountCents int) string { return report("bank-1", "COMPLETED", amountCents) }

func failure(amountCents int) string { return report("bank-1", "FAILED", amountCents) }

func report(paymentRef, outcome string, amountCents int) string {
	return fmt.Sprintf(`{"paymentRef":%q,"outcome":%q,"amountCents":%d}`, paymentRef, outcome, amountCents)
}

// step is one request about a session, and its expected response.
type step struct {
	report string // of a rail; empty: the merchant cancels
	want   string // the response, but for sessionId and endedAt; or the status code of an error
}

const (
	cancel        = ""
	completed     = `{"status":"COMPLETED","applied":true}`
	failed        = `{"status":"FAILED","applied":true}`
	refundPending = `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`
	refundPaid    = `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`
	refundFailed  = `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`
)

// check fails the test unless the response is as the step wants it.
func (s step) check(t *testing.T, number int, got roomtest.Result) {
	t.Helper()
	if len(s.want) == len("409") {
		if strconv.Itoa(got.Status) != s.want {
			t.Fatalf("step %d: status %d, want %s: %s", number, got.Status, s.want, got.Raw)
		}
		return
	}
	var want map[string]any
	storetest.Must(t, json.Unmarshal([]byte(s.want), &want))
	shown := maps.Clone(got.Want(t, http.StatusOK).Body)
	delete(shown, "sessionId")
	delete(shown, "endedAt")
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Fatalf("step %d (-want +got):\n%s", number, diff)
	}
}
