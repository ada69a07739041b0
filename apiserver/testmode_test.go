package apiserver_test

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
)

// testKey publishes a test key of the merchant and returns it in plaintext.
func (f *fixture) testKey(name string, merchant published.MerchantRecord, change ...func(*published.KeyRecord)) string {
	f.t.Helper()
	key, record := roomtest.NewTestKey(f.t, types.UID(f.namespace+"/"+name), name, merchant.MerchantID, change...)
	return f.publishKey(key, record)
}

func settleTest(id string) string { return "/api/v1/test/sessions/" + id + "/settle" }

// modes are keys of both modes of one merchant, each with a session.
type modes struct {
	key, session map[bool]string // by test mode
}

// everything permits a key all.
func everything(r *published.KeyRecord) { r.Permissions = v1alpha1.Permissions() }

func newModes(f *fixture, r *replica, merchant published.MerchantRecord) modes {
	m := modes{key: map[bool]string{
		false: f.key(merchant.Name+"-live", merchant, everything), true: f.testKey(merchant.Name+"-test", merchant, everything),
	}, session: map[bool]string{}}
	for testMode, key := range m.key {
		r.eventuallyStatus(key, http.StatusOK)
		m.session[testMode] = r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).want(f.t, http.StatusCreated).text("sessionId")
	}
	return m
}

// Every route, and what a key gets for a session of the other mode and for its own. A new route must be here.
func TestTestMode_EachRoute(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rail := f.rail("bank")
	r := f.start()
	type answers struct{ live, test, liveForTest, testForLive int } // by mode of the key, and of the session if that is the other
	keyed := func(method, path, body string) func(key, id string) result {
		return func(key, id string) result { return r.call(method, strings.ReplaceAll(path, "{id}", id), key, body) }
	}
	const ok, created, missing, unpaid = http.StatusOK, http.StatusCreated, http.StatusNotFound, http.StatusConflict
	for route, test := range map[string]struct {
		call func(key, id string) result
		want answers
	}{
		"POST /api/v1/sessions":             {keyed("POST", sessions, `{"amountCents": 1}`), answers{created, created, created, created}}, // of its own mode
		"GET /api/v1/sessions":              {keyed("GET", sessions+"?orderRef=1001", ""), answers{ok, ok, ok, ok}},                       // of its own mode
		"GET /api/v1/sessions/{id}":         {keyed("GET", sessions+"/{id}", ""), answers{ok, ok, missing, missing}},
		"POST /api/v1/sessions/{id}/cancel": {keyed("POST", sessions+"/{id}/cancel", ""), answers{ok, ok, missing, missing}},
		"POST /api/v1/sessions/{id}/refunds": {func(key, id string) result {
			return r.call(http.MethodPost, sessions+"/"+id+"/refunds", key, `{}`, "Idempotency-Key", "once")
		}, answers{unpaid, unpaid, missing, missing}},
		"POST /api/v1/test/sessions/{id}/settle": {keyed("POST", settleTest("{id}"), `{}`), answers{missing, ok, missing, missing}},
		"GET /api/v1/merchant/me":                {keyed("GET", me, ""), answers{ok, ok, ok, ok}},
		"GET /api/v1/events":                     {keyed("GET", events, ""), answers{ok, ok, ok, ok}}, // of its own mode: TestList_FollowCursors of events
		"GET " + sessionRoute:                    {func(_, id string) result { return r.railGet(id, rail) }, answers{ok, missing, missing, ok}},
		"POST " + holdRoute: {
			func(_, id string) result { return r.hold(id, rail, `{"paymentRef": "bank-1", "seconds": 60}`) },
			answers{ok, missing, missing, ok},
		},
		"POST " + settlementRoute: {
			func(_, id string) result { return r.report(id, rail, paid(1250)) },
			answers{ok, http.StatusConflict, http.StatusConflict, ok},
		},
		"POST " + refundsRoute: {
			func(_, id string) result {
				r.report(id, rail, paid(1250))
				return r.refund(id, rail, refundBody("bank-1", "back-1", 1))
			},
			answers{ok, missing, missing, ok},
		},
	} {
		t.Run(route, func(t *testing.T) {
			m := newModes(f, r, f.merchant(fmt.Sprint("acme-", len(f.issued))))
			untouched := map[bool]string{}
			for testMode, key := range m.key {
				untouched[testMode] = r.call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).text("sessionId")
			}
			test.call(m.key[false], m.session[false]).want(t, test.want.live)
			test.call(m.key[true], m.session[true]).want(t, test.want.test)
			test.call(m.key[false], untouched[true]).want(t, test.want.liveForTest)
			test.call(m.key[true], untouched[false]).want(t, test.want.testForLive)
			for testMode, id := range untouched {
				if (route == "POST "+settlementRoute || route == "POST "+refundsRoute) && !testMode {
					continue // a rail has no key
				}
				if got := r.call(http.MethodGet, sessions+"/"+id, m.key[testMode], "").want(t, ok).text("status"); got != "PENDING" {
					t.Errorf("a session of test mode %t is %s after a request of the other mode", testMode, got)
				}
			}
		})
	}
	covered := []string{
		"POST /api/v1/sessions", "GET /api/v1/sessions", "GET /api/v1/sessions/{id}", "POST /api/v1/sessions/{id}/cancel", "POST /api/v1/sessions/{id}/refunds", "POST /api/v1/test/sessions/{id}/settle",
		"GET /api/v1/merchant/me", "GET /api/v1/events", "GET " + sessionRoute, "POST " + holdRoute, "POST " + settlementRoute, "POST " + refundsRoute, "GET " + owedRoute,
		// Without a key, by the session id alone: TestTestMode_Marked.
		"GET /api/v1/public/sessions/{id}", "GET /pay/{id}", "GET /pay/{id}/qr.svg",
		"POST /pay/{id}/test", // TestPlayRail
		// About a key: TestTestMode_Rotation.
		"POST /api/v1/keys/rotate", "POST " + rotationPath,
		// About UIDs of ApiKeys, of both modes: TestListAccepted.
		"GET " + rotation.AcceptedPath,
		// About a merchant: TestShowSigningSecret.
		"POST " + signingPath,
		// The same for all.
		"GET /pay/static/{version}/{file}", "GET " + page.WidgetPath, "GET /openapi.yaml",
	}
	for _, operation := range slices.Concat(operations(t, "openapi.yaml"), operations(t, "internal-openapi.yaml")) {
		if route := strings.ReplaceAll(operation, "{sessionId}", "{id}"); !slices.Contains(covered, route) {
			t.Errorf("%s is not tested for the modes", route)
		}
	}
}

// Nobody who sees a test session can take it for a payment.
func TestTestMode_Marked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.start()
	m := newModes(f, r, f.merchant("acme"))
	for testMode, key := range m.key {
		id := m.session[testMode]
		if strings.HasPrefix(id, "ps_test") != testMode {
			t.Errorf("test mode %t: %s", testMode, id)
		}
		if got := r.call(http.MethodGet, me, key, "").want(t, http.StatusOK).body["livemode"]; got != !testMode {
			t.Errorf("test mode %t: merchant/me has livemode %v", testMode, got)
		}
		for path, got := range map[string]result{
			"create": r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`),
			"read":   r.call(http.MethodGet, sessions+"/"+id, key, ""),
			"public": r.call(http.MethodGet, public+"/"+id, "", ""),
			"cancel": r.call(http.MethodPost, sessions+"/"+r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")+"/cancel", key, ""),
		} {
			livemode, given := got.body["livemode"]
			if given != testMode || (given && livemode != false) {
				t.Errorf("test mode %t, %s: %s", testMode, path, got.raw)
			}
		}
		if streamed, _ := r.stream(id).Next(); strings.Contains(streamed.Data, `"livemode":false`) != testMode {
			t.Errorf("test mode %t, stream: %s", testMode, streamed.Data)
		}
		for _, status := range []string{"PENDING", "COMPLETED"} {
			page := r.payerPage(t, id)
			title := page[strings.Index(page, "<title>"):strings.Index(page, "</title>")]
			if !strings.Contains(page, `data-status="`+status+`"`) || strings.Contains(title, "not a real payment") != testMode || strings.Contains(page, `<p class="test">`) != testMode {
				t.Errorf("test mode %t: the page says\n%s", testMode, page)
			}
			if testMode {
				r.call(http.MethodPost, settleTest(id), key, "").want(t, http.StatusOK)
			} else if status == "PENDING" {
				r.report(id, f.rail("bank"), paid(1250)).want(t, http.StatusOK)
			}
		}
	}
}

// No rotation, over HTTP or by the operator, leads out of the mode of a key, and what stops a live key stops a test key.
func TestTestMode_Rotation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme")
	key := f.testKey("test", acme)
	suspended := f.testKey("suspended", f.merchant("suspended", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantSuspended }))
	disabled := f.testKey("disabled", acme, func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	foreign := f.testKey("foreign", f.merchant("foreign", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} }))
	orphan := f.testKey("orphan", published.MerchantRecord{MerchantID: published.ID("nobody")})
	portal := f.issuer("portal")
	r := f.start()
	second := f.rotated(r, key)
	third := f.issuedKey(r.issue(key[8:20], portal, `{`+f.source("test")+`,"expectedGeneration":2,"overlapSeconds":0,"actor":"a"}`).want(t, http.StatusOK))
	if !apikey.IsTest(second) || !apikey.IsTest(third) {
		t.Errorf("rotated to %.8s and %.8s", second, third)
	}
	r.call(http.MethodGet, me, third, "").want(t, http.StatusOK)
	for refused, want := range map[string]int{
		key: 401, second: 401, "mk_live_" + third[8:]: 401, suspended: 403, disabled: 401, foreign: 401, orphan: 401,
	} {
		for _, path := range []string{sessions, settleTest("ps_testaaaaaaaaaaaa000000000000000000")} {
			r.call(http.MethodPost, path, refused, `{"amountCents": 1}`).want(t, want)
		}
	}
}

// Tests are in no live figure and use up no live limit.
func TestTestMode_Metrics(t *testing.T) {
	t.Parallel()
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
func TestTestMode_RateLimit(t *testing.T) {
	t.Parallel()
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
