package apiserver_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// A request that is wrong in several ways is refused for the first of: key, merchant, limit, request. What is refused for the request itself is
// charged as one request. Each operation that takes a key and input is here.
func TestErrors_Order(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const testMode = true
	publish := map[bool]func(string, published.MerchantRecord, ...func(*published.KeyRecord)) string{!testMode: f.key, testMode: f.testKey}
	for mode, key := range publish {
		publish[mode] = func(name string, merchant published.MerchantRecord, edits ...func(*published.KeyRecord)) string {
			return key(name, merchant, append(edits, everything)...)
		}
	}
	limited := func(r *published.MerchantRecord) { r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 1} }
	state := func(state v1alpha1.MerchantState) func(*published.MerchantRecord) {
		return func(r *published.MerchantRecord) { r.State = state }
	}
	acme, slow := f.merchant("acme"), f.merchant("slow", limited)
	suspended := f.merchant("suspended", limited, state(v1alpha1.MerchantSuspended))
	closed := f.merchant("closed", state(v1alpha1.MerchantClosed))
	type keys struct{ good, rotated, replaced, suspended, closed, slow string }
	of := map[bool]keys{}
	for mode, key := range publish {
		replaced := f.newKey(published.ID("replaced")).Reveal()
		name := fmt.Sprint(mode, "-")
		of[mode] = keys{
			good: key(name+"till", acme), rotated: key(name+"rotated", acme), replaced: replaced,
			suspended: key(name+"suspended", suspended), closed: key(name+"closed", closed), slow: key(name+"slow", slow),
		}
		key(name+"replaced", acme, func(r *published.KeyRecord) {
			r.Previous = []published.Previous{{Digest: apikey.NewDigest(replaced), ValidUntil: time.Now().Add(-time.Hour)}}
		})
	}
	unknown := f.newKey(published.ID("nobody")).Reveal()
	fresh := map[string]string{} // keys of merchants that were charged nothing
	type request struct {
		method, path, body string
		headers            []string
		testMode           bool
		wrong              int    // what is wrong with the request itself
		names              string // what the message must name
	}
	const noSession = "session not found"
	refundOf := func(id string) string { return sessions + "/" + id + "/refunds" }
	requests := map[string]request{
		"a bad amount":             {"POST", sessions, `{"amountCents": 0}`, nil, !testMode, 400, "amountCents"},
		"no JSON":                  {"POST", sessions, `{`, nil, !testMode, 400, "body"},
		"too large a body":         {"POST", sessions, hugeBody, nil, !testMode, 400, "body"},
		"a bad Idempotency-Key":    {"POST", sessions, charge1250, []string{"Idempotency-Key", "a b"}, !testMode, 400, "Idempotency-Key"},
		"an unknown field":         {"POST", sessions, `{"amountCents":1,"orderref":"1"}`, nil, testMode, 400, "orderref"},
		"a list of nothing":        {"GET", sessions, "", nil, !testMode, 400, "orderRef"},
		"a malformed list":         {"GET", sessions + "?endedFrom=%zz", "", nil, !testMode, 400, "query"},
		"a list of an odd status":  {"GET", sessions + "?endedFrom=1600000000000&status=PAID", "", nil, !testMode, 400, "status"},
		"a list of odd movements":  {"GET", sessions + "?endedFrom=1600000000000&movements=yes", "", nil, !testMode, 400, "movements"},
		"a list of no order":       {"GET", sessions + "?orderRef=", "", nil, !testMode, 400, "orderRef"},
		"a list of no receipt":     {"GET", sessions + "?reference=1001", "", nil, !testMode, 400, "reference"},
		"events after no cursor":   {"GET", events + "?after=x", "", nil, !testMode, 400, "after"},
		"too long a wait":          {"GET", events + "?wait=26", "", nil, !testMode, 400, "wait"},
		"a malformed id":           {"GET", sessions + "/x", "", nil, !testMode, 404, noSession},
		"an id with a slash":       {"GET", sessions + "/a%2Fb%00", "", nil, !testMode, 404, noSession},
		"an unknown id":            {"GET", sessions + "/ps_aaaaaaaaaaaa000000000000000000", "", nil, !testMode, 404, noSession},
		"cancel of a malformed id": {"POST", sessions + "/x/cancel", "", nil, !testMode, 404, noSession},
		"cancel of an unknown id":  {"POST", sessions + "/ps_aaaaaaaaaaaa000000000000000000/cancel", "", nil, !testMode, 404, noSession},
		"a refund by no key":       {"POST", refundOf("ps_aaaaaaaaaaaa000000000000000000"), "{}", nil, !testMode, 400, "Idempotency-Key"},
		"a refund of nothing":      {"POST", refundOf("ps_aaaaaaaaaaaa000000000000000000"), `{"amountCents": 0}`, []string{"Idempotency-Key", "a"}, !testMode, 400, "amountCents"},
		"a refund of an odd field": {"POST", refundOf("ps_testaaaaaaaaaaaa000000000000000000"), `{"amount": 1}`, []string{"Idempotency-Key", "a"}, testMode, 400, "amount"},
		"a refund of a bad id":     {"POST", refundOf("x"), "{}", []string{"Idempotency-Key", "a"}, !testMode, 404, noSession},
		"a refund of no session":   {"POST", refundOf("ps_aaaaaaaaaaaa000000000000000000"), "{}", []string{"Idempotency-Key", "a"}, !testMode, 404, noSession},
		"settle with a live key":   {"POST", settleTest("x"), "", nil, !testMode, 404, "test key"},
		"settle of a malformed id": {"POST", settleTest("x"), "", nil, testMode, 404, noSession},
		"settle of an unknown id":  {"POST", settleTest("ps_testaaaaaaaaaaaa000000000000000000"), "", nil, testMode, 404, noSession},
		"settle with a bad report": {"POST", settleTest("ps_testaaaaaaaaaaaa000000000000000000"), `{"outcome": "PAID"}`, nil, testMode, 400, "outcome"},
	}
	for name, request := range requests {
		fresh[name] = publish[request.testMode](name, f.merchant("of "+name, func(r *published.MerchantRecord) { r.RateLimit = slowly }))
	}
	r, frozen := f.start(), f.start()
	frozen.proxy.FreezeWatches()
	for mode := range publish {
		f.rotated(r, of[mode].rotated)
	}
	const ended = "cancel of a failed session"
	failed := r.create(of[!testMode].good)
	r.report(failed, f.rail("bank"), failure(1250)).want(t, http.StatusOK)
	requests[ended] = request{"POST", sessions + "/" + failed + "/cancel", "", nil, !testMode, 409, "FAILED"}
	fresh[ended] = of[!testMode].good

	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			keys := of[request.testMode]
			call := func(key string) result {
				return r.call(request.method, request.path, key, request.body, request.headers...)
			}
			for _, dead := range []string{unknown, keys.replaced, keys.rotated} {
				call(dead).want(t, http.StatusUnauthorized)
			}
			frozen.call(request.method, request.path, keys.rotated, request.body, request.headers...).want(t, http.StatusUnauthorized)
			for range 3 { // a blocked merchant's limiter is not charged
				call(keys.suspended).wantError(t, http.StatusForbidden, "merchant is not active")
			}
			call(keys.closed).want(t, http.StatusForbidden)
			// The burst of one comes back within a second, so each request over the limit follows one that spends it.
			eventually(t, "the limit is exceeded", func() bool {
				r.call(http.MethodGet, me, keys.slow, "")
				return call(keys.slow).status == http.StatusTooManyRequests
			})
			got := call(fresh[name]).want(t, request.wrong)
			if !strings.Contains(got.text("error"), request.names) {
				t.Errorf("error %q does not name %s", got.text("error"), request.names)
			}
			if quota := got.header.Get("RateLimit"); quota != `"merchant";r=99;t=1` && name != ended {
				t.Errorf("charged with more or less than one request: RateLimit %s", quota)
			}
		})
	}

	covered := []string{"GET " + me, "POST " + rotate} // without input
	for _, request := range requests {
		path, _, _ := strings.Cut(request.path, "?")
		covered = append(covered, request.method+" "+regexp.MustCompile(`sessions/[^/]+`).ReplaceAllString(path, "sessions/{sessionId}"))
	}
	for _, operation := range operations(t, "openapi.yaml") {
		keyed := strings.Contains(operation, " /api/v1/") && !strings.Contains(operation, public)
		if keyed && !slices.Contains(covered, operation) {
			t.Errorf("%s is not in this test", operation)
		}
	}
}

// A program distinguishes errors by a code, on the public and on the internal listener.
func TestErrorCode(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	acme := f.merchant("acme", func(r *published.MerchantRecord) { r.Sessions.IdempotencyMismatch = v1alpha1.IdempotencyMismatchReject })
	key, testKey := f.key("other-till", acme), f.testKey("test", acme)
	suspended := f.key("of-suspended", f.merchant("suspended", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantSuspended }))
	slow := f.key("slow", f.merchant("slow", func(r *published.MerchantRecord) {
		r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 1}
	}))
	rail, console := f.rail("bank"), f.issuer("console")
	issued := f.unissued("till", acme)
	own := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) {
		o.RedisURL, o.Streams.Max, o.Streams.MaxPerAddress, o.Streams.Drain = own.URL(), 1, 1, 0
	})
	create := func(key, body string, headers ...string) result {
		return r.call(http.MethodPost, sessions, key, body, headers...)
	}
	failed := create(key, `{"amountCents": 1}`, "Idempotency-Key", "order-1").want(t, http.StatusCreated).text("sessionId")
	r.report(failed, rail, failure(1)).want(t, http.StatusOK)
	test := create(testKey, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")
	watched := r.stream(create(key, `{"amountCents": 1}`).text("sessionId"))
	watched.Next()
	unparsable, _ := r.raw(t, "GET / HTTP/1.1\r\n\r\n")

	for name, test := range map[string]struct {
		got    result
		status int
		code   string
	}{
		"no JSON":                    {create(key, `{`), 400, "invalid_request"},
		"a field against its rule":   {create(key, `{"amountCents": 0}`), 400, "invalid_request"},
		"an Idempotency-Key":         {create(key, `{"amountCents": 1}`, "Idempotency-Key", "a b"), 400, "invalid_request"},
		"a wait of too long":         {r.call(http.MethodGet, public+"/"+failed+"?wait=26", "", ""), 400, "invalid_request"},
		"a size of a QR code":        {r.call(http.MethodGet, "/pay/"+failed+"/qr.svg?size=1", "", ""), 400, "invalid_request"},
		"a test key's unknown field": {create(testKey, `{"amountCents": 1, "x": 1}`), 400, "unknown_field"},
		"another charge, rejected":   {create(key, `{"amountCents": 2}`, "Idempotency-Key", "order-1"), 400, "idempotency_mismatch"},
		"no key":                     {create("", `{`), 401, ""},
		"a suspended merchant":       {create(suspended, `{"amountCents": 1}`), 403, "merchant_not_active"},
		"an unknown session":         {r.call(http.MethodGet, sessions+"/x", key, ""), 404, "session_not_found"},
		"an unknown page":            {r.call(http.MethodGet, "/pay/x", "", ""), 404, "session_not_found"},
		"an unknown path":            {r.call(http.MethodGet, "/api/v1/nothing", key, ""), 404, "path_not_found"},
		"a path with a slash":        {r.call(http.MethodGet, me+"/", key, ""), 404, "path_not_found"},
		"a path of test keys":        {r.call(http.MethodPost, settleTest(test), key, ""), 404, "test_key_required"},
		"another method":             {r.call(http.MethodDelete, me, key, ""), 405, "method_not_allowed"},
		"an ended session":           {r.call(http.MethodPost, sessions+"/"+failed+"/cancel", key, ""), 409, "session_ended"},
		"a second stream":            {r.call(http.MethodGet, public+"/"+failed, "", "", "Accept", "text/event-stream"), 503, "too_many_streams"},

		"a rail's read of no session":   {r.railGet("x", rail), 404, "session_not_found"},
		"a rail's read of a test":       {r.railGet(test, rail), 404, "session_not_found"},
		"a hold of no session":          {r.hold("x", rail, `{}`), 404, "session_not_found"},
		"a hold of an ended session":    {r.hold(failed, rail, `{"paymentRef":"other","seconds":1}`), 409, "session_ended"},
		"a report without a token":      {r.report(failed, "", paid(1)), 401, ""},
		"a report by anybody":           {r.report(failed, console, paid(1)), 403, "account_not_allowed"},
		"a report of no session":        {r.report("x", rail, paid(1)), 404, "session_not_found"},
		"a report that contradicts":     {r.report(failed, rail, failure(2)), 409, "payment_conflict"},
		"a report of a test session":    {r.report(test, rail, paid(1)), 409, "test_session"},
		"a rotation of no key":          {r.issue("aaaaaaaaaaaa", console, f.rotation(1, 0)), 404, "key_not_found"},
		"a rotation of another one's":   {r.issue(issued, console, f.rotation(7, 0)), 409, "generation_conflict"},
		"a rotation without a field":    {r.issue(issued, console, `{}`), 400, "invalid_request"},
		"an unknown path, inside":       {r.internally(http.MethodPost, "/internal/v1/x", rail, ""), 404, "path_not_found"},
		"what the HTTP library refuses": {unparsable, 400, "invalid_request"},
	} {
		if code := test.got.want(t, test.status).header.Get("Error-Code"); code != test.code {
			t.Errorf("%s: Error-Code %q, want %q", name, code, test.code)
		}
	}
	_, limited := spend(t, func() result { return r.call(http.MethodGet, me, slow, "") })
	if code := limited.header.Get("Error-Code"); code != "rate_limited" {
		t.Errorf("over the limit: Error-Code %q", code)
	}
	own.Stop()
	for name, test := range map[string]struct {
		got  result
		code string
	}{
		"a read":        {r.call(http.MethodGet, me, key, ""), "unavailable"},
		"a charge":      {create(key, `{"amountCents": 1}`), "charge_unknown"},
		"a rail's read": {r.railGet(failed, rail), "unavailable"},
		"a report":      {r.report(failed, rail, paid(1)), "report_unknown"},
		"a page":        {r.call(http.MethodGet, "/pay/"+failed, "", ""), "unavailable"},
	} {
		if code := test.got.want(t, http.StatusServiceUnavailable).header.Get("Error-Code"); code != test.code {
			t.Errorf("%s without Redis: Error-Code %q, want %q", name, code, test.code)
		}
	}
}

func TestErrors_SuspendedMerchantHasNoQuota(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantSuspended }))
	r := f.start()
	for _, route := range []struct{ method, path string }{{"GET", me}, {"POST", sessions}, {"POST", rotate}, {"GET", sessions + "/x"}, {"POST", sessions + "/x/cancel"}} {
		got := r.call(route.method, route.path, key, `{"amountCents":1}`).want(t, http.StatusForbidden)
		if got.header.Get("RateLimit") != "" || got.header.Get("RateLimit-Policy") != "" {
			t.Errorf("%s %s: headers %v", route.method, route.path, got.header)
		}
	}
}

// Without Redis there is no guess, and it works again when Redis is back.
func TestErrors_RedisDown(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]struct{ begin, end func(*redistest.Server) }{
		"stopped": {(*redistest.Server).Stop, func(s *redistest.Server) { s.Start() }},
		"frozen":  {(*redistest.Server).Pause, (*redistest.Server).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			key := f.key("till", f.merchant("acme"))
			own := redistest.Start(t)
			r := f.start(func(o *apiserver.Options) {
				o.RedisURL, o.RedisTimeout = own.URL(), apiserver.DefaultOptions().RedisTimeout
			})
			id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")

			rail := f.rail("bank")

			outage.begin(own)
			uncertain := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`)
			uncertain.wantError(t, http.StatusServiceUnavailable, "temporarily unavailable; retry with the same Idempotency-Key")
			for _, request := range []struct{ method, path, key, body string }{
				{http.MethodPost, sessions, key, `{"amountCents": 0}`},
				{http.MethodGet, sessions + "/" + id, key, ""},
				{http.MethodGet, sessions + "/x", key, ""},
				{http.MethodPost, sessions + "/" + id + "/cancel", key, ""},
				{http.MethodGet, public + "/" + id, "", ""},
				{http.MethodGet, me, key, ""},
				{http.MethodPost, rotate, key, ""},
			} {
				got := r.call(request.method, request.path, request.key, request.body)
				got.wantError(t, http.StatusServiceUnavailable, unavailable)
			}
			unsettled := r.report(id, rail, paid(1))
			unsettled.wantError(t, http.StatusServiceUnavailable, reportAgain)
			if unsettled.header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
			r.call(http.MethodGet, me, f.newKey(key[8:20]).Reveal()[:58], "").want(t, http.StatusUnauthorized)
			if status := getStatus(r.ops + "/readyz"); status != http.StatusOK {
				t.Errorf("/readyz %d: an outage of Redis must not take every replica out of service", status)
			}
			if status := getStatus(r.ops + "/healthz"); status != http.StatusOK {
				t.Errorf("/healthz %d: a restart would not bring Redis back", status)
			}

			outage.end(own)
			var charged result
			eventually(t, "the charge succeeds", func() bool {
				charged = r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`)
				return charged.status == http.StatusCreated
			})
			r.report(charged.text("sessionId"), rail, paid(1)).want(t, http.StatusOK)
		})
	}
}
