package apiserver_test

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// A merchant plays its rail. Each step is a report and what a rail would be answered.
func TestSettlingATestSession(t *testing.T) {
	f := newFixture(t)
	key := f.testKey("test", f.merchant("acme"))
	r := f.start()
	const refund = `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`
	for name, steps := range map[string][]step{
		"paid, in short":   {{"", completed}, {"{}", completed}, {`{"outcome":"COMPLETED"}`, completed}},
		"paid, in full":    {{paid(1250), completed}, {paid(1250), completed}},
		"failed":           {{`{"outcome":"FAILED","reason":"insufficient funds"}`, failed}, {`{"outcome":"FAILED"}`, failed}},
		"other currency":   {{`{"currency":"USD"}`, `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`}, {`{}`, completed}, {`{"currency":"EUR"}`, completed}},
		"paid twice":       {{`{"paymentRef":"a"}`, completed}, {`{"paymentRef":"b"}`, refund}, {`{"paymentRef":"a"}`, completed}},
		"a wrong amount":   {{`{"amountCents":1}`, `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`}, {"{}", completed}},
		"failed, then not": {{`{"outcome":"FAILED"}`, failed}, {"{}", `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`}},
		"contradiction":    {{paid(1250), completed}, {failure(1250), "409"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).text("sessionId")
			for i, step := range steps {
				step.check(t, i, r.call(http.MethodPost, settleTest(id), key, step.report))
			}
		})
	}
}

func TestRefusedReportsOfATestSession(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme")
	key, live := f.testKey("test", acme), f.key("live", acme)
	stranger := f.testKey("stranger", f.merchant("globex"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).text("sessionId")
	for body, message := range map[string]string{
		`[]`:                            "body must be one JSON object",
		`{"outcome":"PENDING"}`:         "outcome must be COMPLETED or FAILED",
		`{"outcome":7}`:                 "outcome must be COMPLETED or FAILED",
		`{"outcome":""}`:                "outcome must be COMPLETED or FAILED",
		`{"amountCents":0}`:             "amountCents must be an integer from 1 to 10000000",
		`{"amountCents":"1250"}`:        "amountCents must be an integer from 1 to 10000000",
		`{"paymentRef":""}`:             "paymentRef must be a string of 1 to 128 visible ASCII characters",
		`{"reason":"\u0001"}`:           "reason must be a string of at most 255 characters without control characters",
		`{"paidAt":"yesterday"}`:        "paidAt must be a time from 1970 to 9999, as Unix milliseconds or an RFC 3339 string",
		`{"outcome":"a","outcome":"b"}`: `duplicate field "outcome"`,
	} {
		r.call(http.MethodPost, settleTest(id), key, body).wantError(t, http.StatusBadRequest, message)
	}
	const otherMode = "path not found for live keys; use a test key (mk_test_)"
	for _, path := range []string{settleTest(id), settleTest("x"), settleTest(otherID(id))} {
		r.call(http.MethodPost, path, live, "{").wantError(t, http.StatusNotFound, otherMode) // whatever it asks for
	}
	for _, path := range []string{settleTest("x"), settleTest("ps_aaaaaaaaaaaa000000000000000000"), settleTest("ps_testaaaaaaaaaaaa000000000000000000")} {
		r.call(http.MethodPost, path, key, "").wantError(t, http.StatusNotFound, "session not found")
	}
	r.call(http.MethodPost, settleTest(id), stranger, "").wantError(t, http.StatusNotFound, "session not found")
	r.call(http.MethodPost, settleTest(id), "", "").want(t, http.StatusUnauthorized)
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
}

// Tests are in no live figure and use up no live limit.
func TestTrafficOfTestModeIsNotCountedAsLive(t *testing.T) {
	f := newFixture(t)
	small := func(r *published.MerchantRecord) { r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 4} }
	acme := f.merchant("acme", small)
	key, live := f.testKey("test", acme), f.key("live", acme)
	r := f.start()
	r.call(http.MethodGet, me, live, "").want(t, http.StatusOK)
	figures := regexp.MustCompile(`(?m)^merchant_operator_(http_request_duration_seconds_count|http_unauthorized_total|http_rate_limited_total|settlements_total)\{.*`)
	counted := func() []string {
		return figures.FindAllString(string(plain(t, http.MethodGet, r.ops+"/metrics", "").raw), -1)
	}
	before := counted()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).want(t, http.StatusCreated).text("sessionId")
	r.call(http.MethodPost, settleTest(id), key, "").want(t, http.StatusOK)
	r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK)
	r.call(http.MethodGet, "/pay/"+id, "", "").want(t, http.StatusOK)
	r.call(http.MethodGet, me, "mk_test_"+strings.Repeat("x", 50), "").want(t, http.StatusUnauthorized)
	_, refused := spend(t, func() result { return r.call(http.MethodGet, me, key, "") })
	refused.want(t, http.StatusTooManyRequests)
	if after := counted(); !slices.Equal(before, after) {
		t.Errorf("tests are counted as live:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	for name, want := range map[string]string{
		`merchant_operator_http_test_requests_total{method="POST",route="/api/v1/sessions",status="201"}`:                  "1",
		`merchant_operator_http_test_requests_total{method="POST",route="/api/v1/test/sessions/{id}/settle",status="200"}`: "1",
		`merchant_operator_http_test_requests_total{method="GET",route="/api/v1/public/sessions/{id}",status="200"}`:       "1",
		`merchant_operator_http_test_requests_total{method="GET",route="/pay/{id}",status="200"}`:                          "1",
		`merchant_operator_http_test_requests_total{method="GET",route="/api/v1/merchant/me",status="401"}`:                "1",
	} {
		if got := r.metric(name); got != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	r.call(http.MethodGet, me, live, "").want(t, http.StatusOK) // the test key's limit is exhausted
	r.report(id, f.rail("bank"), paid(1250)).wantError(t, http.StatusConflict, "session is of test mode, which no rail settles; refund the payment")
	if got := r.metric(`merchant_operator_settlements_total{outcome="COMPLETED",result="test_session"}`); got != "1" {
		t.Errorf("counted %q payments of test sessions", got)
	}
}

// Whatever the merchant's limit is, its test keys together get a small fixed one.
func TestTestMode_HasASmallRateOfItsOwn(t *testing.T) {
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) {
		r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 100_000}
	})
	key := f.testKey("test", acme)
	r := f.start()
	got := r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	if policy := got.header.Get("RateLimit-Policy"); policy != `"merchant";q=100;w=20` {
		t.Errorf("the policy is %s, want 100 requests in 20 seconds", policy)
	}
	if limit := got.body["merchant"].(map[string]any)["rateLimit"]; !reflect.DeepEqual(limit, map[string]any{"requestsPerSecond": 5.0, "burst": 100.0}) {
		t.Errorf("merchant/me says %v", limit)
	}
}

// Past the bound of a session the answer stays the same, and a metric counts.
func TestTestMode_KeepsAHandfulOfRefusedPayments(t *testing.T) {
	f := newFixture(t)
	key := f.testKey("test", f.merchant("acme"))
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).want(t, http.StatusCreated).text("sessionId")
	for i := range 8 {
		got := r.call(http.MethodPost, settleTest(id), key, fmt.Sprintf(`{"amountCents": 7, "paymentRef": "r%d"}`, i)).want(t, http.StatusOK)
		if got.text("action") != "REFUND_REQUIRED" || got.body["applied"] != false {
			t.Errorf("payment %d: %v", i, got.body)
		}
	}
	if got := r.metric(`merchant_operator_refused_payments_unstored_total{mode="test"}`); got != "3" {
		t.Errorf("%q payments are counted as not stored, want 3", got)
	}
}
