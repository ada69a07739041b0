package rail_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/rail"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
)

// newTestMode returns a fixture that serves the path of test keys instead of the paths of rails, and a test key of acme.
func newTestMode(t *testing.T) (f *fixture, key string) {
	t.Helper()
	f = &fixture{Replica: roomtest.New(t, sharedRedis.URL()), t: t, redis: sharedRedis}
	h := rail.New(rail.Options{Store: f.Store, Directory: f.Directory, Gate: f.Gate, Log: f.Log, Registerer: f.Registry})
	f.Serve(openapitest.Public, web.Routes{settleTest("{id}"): {http.MethodPost: f.Gate.WithKey(v1alpha1.PermissionCreate, h.SettleTest)}})
	f.acme = f.Merchant("acme")
	return f, f.TestKey("test", f.acme)
}

func settleTest(id string) string { return "/api/v1/test/sessions/" + id + "/settle" }

// A merchant plays its rail. Each step is a report and the response that a rail would get.
func TestSettleTest(t *testing.T) {
	f, key := newTestMode(t)
	for name, steps := range map[string][]step{
		"paid, in short":   {{"", completed}, {"{}", completed}, {`{"outcome":"COMPLETED"}`, completed}},
		"paid, in full":    {{paid(1250), completed}, {paid(1250), completed}},
		"failed":           {{`{"outcome":"FAILED","reason":"insufficient funds"}`, failed}, {`{"outcome":"FAILED"}`, failed}},
		"other currency":   {{`{"currency":"USD"}`, refundPending}, {`{}`, completed}, {`{"currency":"EUR"}`, completed}},
		"paid twice":       {{`{"paymentRef":"a"}`, completed}, {`{"paymentRef":"b"}`, refundPaid}, {`{"paymentRef":"a"}`, completed}},
		"a wrong amount":   {{`{"amountCents":1}`, refundPending}, {"{}", completed}},
		"failed, then not": {{`{"outcome":"FAILED"}`, failed}, {"{}", refundFailed}},
		"contradiction":    {{paid(1250), completed}, {failure(1250), "409"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := f.createTest()
			for i, step := range steps {
				step.check(t, i, f.Call(http.MethodPost, settleTest(id), key, step.report))
			}
		})
	}
}

func TestSettleTest_BadReports(t *testing.T) {
	f, key := newTestMode(t)
	live, stranger := f.Key("live", f.acme), f.TestKey("stranger", f.Merchant("globex"))
	id := f.createTest()
	for body, message := range map[string]string{
		`[]`:                            "body must be one JSON object",
		`{"outcome":"PENDING"}`:         "outcome must be COMPLETED or FAILED",
		`{"outcome":7}`:                 "outcome must be COMPLETED or FAILED",
		`{"outcome":""}`:                "outcome must be COMPLETED or FAILED",
		`{"amountCents":0}`:             reportedAmountRule,
		`{"amountCents":"1250"}`:        reportedAmountRule,
		`{"paymentRef":""}`:             "paymentRef must be a string of 1 to 128 visible ASCII characters",
		`{"reason":"\u0001"}`:           "reason must be a string of at most 255 characters without control characters",
		`{"paidAt":"yesterday"}`:        "paidAt must be a time from 2020 to 9999, as Unix milliseconds (not seconds) or an RFC 3339 string",
		`{"outcome":"a","outcome":"b"}`: `duplicate field "outcome"`,
	} {
		f.Call(http.MethodPost, settleTest(id), key, body).WantError(t, http.StatusBadRequest, message)
	}
	const otherMode = "path not found for live keys; use a test key (mk_test_)"
	for _, path := range []string{settleTest(id), settleTest("x"), settleTest(f.create())} {
		f.Call(http.MethodPost, path, live, "{").WantError(t, http.StatusNotFound, otherMode) // whatever it asks for
	}
	for _, path := range []string{settleTest("x"), settleTest("ps_aaaaaaaaaaaa000000000000000000"), settleTest("ps_testaaaaaaaaaaaa000000000000000000")} {
		f.Call(http.MethodPost, path, key, "").WantError(t, http.StatusNotFound, "session not found")
	}
	f.Call(http.MethodPost, settleTest(id), stranger, "").WantError(t, http.StatusNotFound, "session not found")
	f.Call(http.MethodPost, settleTest(id), key, `{"amount": 1}`).WantError(t, http.StatusBadRequest, `unknown field "amount"`)
	if status := f.testSession(id).Status; status != session.Pending {
		t.Errorf("the session is %s", status)
	}
}

// testSession reads a test session of acme.
func (f *fixture) testSession(id string) session.Session {
	f.t.Helper()
	parsed, err := session.ParseID(id)
	if err != nil {
		f.t.Fatal(err)
	}
	request := asks(f.acme)
	request.TestMode = true
	_, sess, err := f.Session(f.t.Context(), request, parsed)
	if err != nil {
		f.t.Fatal(err)
	}
	return sess
}

// Past the bound of a session the response stays the same, and a metric counts.
func TestSettleTest_RefusedPayments(t *testing.T) {
	f, key := newTestMode(t)
	id := f.createTest()
	for i := range 8 {
		step{want: refundPending}.check(t, i, f.Call(http.MethodPost, settleTest(id), key, fmt.Sprintf(`{"amountCents": 7, "paymentRef": "r%d"}`, i)))
	}
	if got := f.Metric(`merchant_operator_refused_payments_unstored_total{mode="test"}`); got != "3" {
		t.Errorf("%q payments are counted as not stored, want 3", got)
	}
}
