package apiserver_test

import (
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// A request that is wrong in several ways is refused for the first of: key, merchant, limit, request.
func TestErrors_Order(t *testing.T) {
	f := newFixture(t)
	limited := func(r *published.MerchantRecord) { r.RateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 1} }
	acme := f.merchant("acme")
	key := f.key("till", acme)
	suspended := f.key("of-suspended", f.merchant("suspended", limited, func(r *published.MerchantRecord) {
		r.State = v1alpha1.MerchantSuspended
	}))
	closed := f.key("of-closed", f.merchant("closed", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantClosed }))
	slow := f.key("slow", f.merchant("slow", limited))
	dead := f.newKey(published.ID("nobody")).Reveal()
	r := f.start()
	failed := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.report(failed, f.rail("bank"), failure(1)).want(t, http.StatusOK)
	// The burst of one comes back within a second, so each request over the limit follows one that spends it.
	spend := func() { r.call(http.MethodGet, me, slow, "") }

	for _, request := range []struct {
		name, method, path, body string
		wrong                    int // what is wrong with the request itself
	}{
		{"a bad body", http.MethodPost, sessions, `{"amountCents": 0}`, http.StatusBadRequest},
		{"too large a body", http.MethodPost, sessions, badBodies["200 KB"].body, http.StatusBadRequest},
		{"a malformed id", http.MethodGet, sessions + "/x", "", http.StatusNotFound},
		{"an id with a slash and NUL", http.MethodGet, sessions + "/a%2Fb%00", "", http.StatusNotFound},
		{"cancel of a malformed id", http.MethodPost, sessions + "/x/cancel", "", http.StatusNotFound},
		{"cancel of an unknown id", http.MethodPost, sessions + "/ps_aaaaaaaaaaaa000000000000000000/cancel", "", http.StatusNotFound},
		{"cancel of a failed session", http.MethodPost, sessions + "/" + failed + "/cancel", "", http.StatusConflict},
		{"an unknown id", http.MethodGet, sessions + "/ps_aaaaaaaaaaaa000000000000000000", "", http.StatusNotFound},
	} {
		t.Run(request.name, func(t *testing.T) {
			call := func(key string) result { return r.call(request.method, request.path, key, request.body) }
			call(dead).want(t, http.StatusUnauthorized)
			for range 3 { // a blocked merchant's limiter is not charged
				call(suspended).wantError(t, http.StatusForbidden, "merchant is not active")
			}
			call(closed).want(t, http.StatusForbidden)
			eventually(t, "the limit is exceeded", func() bool {
				spend()
				return call(slow).status == http.StatusTooManyRequests
			})
			call(key).want(t, request.wrong)
		})
	}
}

// A program distinguishes errors by a code, on the public and on the internal listener.
func TestErrorCode(t *testing.T) {
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
	watched.next()
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
