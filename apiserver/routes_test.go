package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

func TestRoutes_UnknownPaths(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for _, path := range []string{
		"/", "/nothing", "/api", "/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v2/sessions", "/API/v1/sessions",
		sessions + "/", "/" + sessions, "//api/v1//sessions", "/api/v1/./sessions", "/api/v1/x/../sessions", "/api/v1/sessions/..",
		public, public + "/", public + "/x/y", me + "/", "/api/v1/merchant", "/metrics", "/healthz", "/readyz", "/internal/v1/sessions", sessions + "/x/cancel/", sessions + "/cancel/x", sessions + "//cancel",
		"/api%2Fv1/sessions", "/openapi.yaml/", "/openapi.json", "/debug/pprof/", "/%00", "/%2e%2e/",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			r.call(method, path, key, `{"amountCents": 1}`).wantError(t, http.StatusNotFound, "path not found")
		}
	}
}

func TestRoutes_Methods(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	for path, allow := range map[string]string{
		sessions:                  "GET, HEAD, OPTIONS, POST",
		sessions + "/x":           "GET, HEAD, OPTIONS",
		sessions + "/x/cancel":    "OPTIONS, POST",
		public + "/x":             "GET, HEAD, OPTIONS",
		me:                        "GET, HEAD, OPTIONS",
		rotate:                    "OPTIONS, POST",
		"/openapi.yaml":           "GET, HEAD",
		"/api/v1/%73essions":      "GET, HEAD, OPTIONS, POST", // the same path, escaped
		sessions + "?amount=1":    "GET, HEAD, OPTIONS, POST",
		"/api/v1/merchant/me?x=/": "GET, HEAD, OPTIONS",
	} {
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodTrace, "get", "PROPFIND"} {
			got := r.call(method, path, key, "")
			got.wantError(t, http.StatusMethodNotAllowed, "method not allowed; use "+strings.NewReplacer(", OPTIONS", "", "OPTIONS, ", "", ", HEAD", "", ", POST", " or POST").Replace(allow))
			if got.header.Get("Allow") != allow {
				t.Errorf("%s %s: Allow %q, want %q", method, path, got.header.Get("Allow"), allow)
			}
		}
	}
	r.call(http.MethodGet, rotate, key, "").want(t, http.StatusMethodNotAllowed)
}

func TestRoutes_Head(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start()
	got := r.call(http.MethodHead, me, key, "").want(t, http.StatusOK)
	if len(got.raw) > 0 || got.header.Get("Content-Type") != "application/json" || got.header.Get("RateLimit") == "" {
		t.Errorf("%v %s", got.header, got.raw)
	}
	r.call(http.MethodHead, me, "", "").want(t, http.StatusUnauthorized)
	r.call(http.MethodHead, rotate, key, "").want(t, http.StatusMethodNotAllowed)
}

func TestRoutes_InternalListener(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail := f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, path := range []string{
		"/", sessions, sessions + "/" + id, sessions + "/" + id + "/cancel", public + "/" + id, me, rotate, "/openapi.yaml", "/metrics",
		"/internal", "/internal/v1/sessions", "/internal/v1/sessions/", "/internal/v1/sessions/" + id + "/", settlementPath(id) + "/", settlementPath(id) + "/x",
		settlementPath(""), "/internal/v1/sessions/./settlement", "/internal/v1/x/../sessions/" + id + "/settlement", "/" + settlementPath(id),
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			for _, credential := range []string{key, rail} {
				got := r.internally(method, path, credential, paid(1))
				got.wantError(t, http.StatusNotFound, "path not found")
				if got.header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s is open to browsers", path)
				}
			}
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		got := r.internally(method, settlementPath(id), rail, paid(1)).want(t, http.StatusMethodNotAllowed)
		if got.header.Get("Allow") != http.MethodPost {
			t.Errorf("%s: Allow %q", method, got.header.Get("Allow"))
		}
	}
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
}

// No credential settles a session on the public port.
func TestRoutes_PublicListener(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail := f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, credential := range []string{"", key, rail} {
		for _, path := range []string{settlementPath(id), sessions + "/" + id + "/settlement", "/api/v1" + settlementPath(id)} {
			r.call(http.MethodPost, path, credential, paid(1)).wantError(t, http.StatusNotFound, "path not found")
		}
	}
	r.call(http.MethodPost, sessions+"/"+id+"/cancel", rail, "").want(t, http.StatusUnauthorized)
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
}

// A request costs one round trip, however it ends; one whose key is unknown or whose caller is
// foreign costs none, so that neither load nor timing distinguishes the two.
func TestRoutes_RoundTrips(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	suspended := f.key("suspended", f.merchant("suspended", func(r *published.MerchantRecord) { r.State = v1alpha1.MerchantSuspended }))
	foreign := f.key("foreign", f.merchant("foreign", func(r *published.MerchantRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} }))
	disabled := f.key("disabled", f.merchant("other"), func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled })
	rotating := f.key("rotating", f.merchant("rotating"))
	dead := f.newKey(key[8:20]).Reveal()
	own := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	server := redis.NewClient(&redis.Options{Addr: own.Addr()})
	defer func() { _ = server.Close() }()

	r.awaitChecked()
	r.proxy.FreezeWatches() // what a replica sees in its watch it writes to Redis, too

	// A server learns each script once.
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`, "Idempotency-Key", "k").text("sessionId")
	r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK)
	r.call(http.MethodGet, public+"/"+id, "", "").want(t, http.StatusOK)
	r.call(http.MethodGet, sessions+"?orderRef=1001", key, "").want(t, http.StatusOK)
	r.call(http.MethodGet, sessions+"?endedFrom=1600000000000", key, "").want(t, http.StatusOK)
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	r.call(http.MethodGet, events, key, "").want(t, http.StatusOK)
	cancelled := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.call(http.MethodPost, sessions+"/"+cancelled+"/cancel", key, "").want(t, http.StatusOK)
	forRotation := f.rotated(r, rotating)

	const missing = "ps_aaaaaaaaaaaa000000000000000000"
	for name, test := range map[string]struct {
		method, path, key, body, idempotencyKey string
		status, trips                           int
	}{
		"create":                          {"POST", sessions, key, `{"amountCents": 1}`, "", 201, 1},
		"create with an Idempotency-Key":  {"POST", sessions, key, `{"amountCents": 1}`, "another", 201, 1},
		"replay":                          {"POST", sessions, key, `{"amountCents": 1}`, "k", 201, 1},
		"create with a bad body":          {"POST", sessions, key, `{`, "", 400, 1},
		"create for a suspended merchant": {"POST", sessions, suspended, `{"amountCents": 1}`, "", 403, 1},
		"create with a dead key":          {"POST", sessions, dead, `{"amountCents": 1}`, "", 401, 1},
		"create with a dead key, badly":   {"POST", sessions, dead, `{`, "", 401, 1},
		"get":                             {"GET", sessions + "/" + id, key, "", "", 200, 1},
		"get what is not there":           {"GET", sessions + "/" + missing, key, "", "", 404, 1},
		"get a malformed id":              {"GET", sessions + "/x", key, "", "", 404, 1},
		"list an order":                   {"GET", sessions + "?orderRef=1001", key, "", "", 200, 1},
		"list a receipt":                  {"GET", sessions + "?reference=PHPG-2J6W", key, "", "", 200, 1},
		"list what has ended":             {"GET", sessions + "?endedFrom=1600000000000", key, "", "", 200, 1},
		"list badly":                      {"GET", sessions, key, "", "", 400, 1},
		"list with a dead key, badly":     {"GET", sessions, dead, "", "", 401, 1},
		"cancel":                          {"POST", sessions + "/" + id + "/cancel", key, "", "", 200, 1},
		"cancel again":                    {"POST", sessions + "/" + cancelled + "/cancel", key, "", "", 200, 1},
		"cancel what is not there":        {"POST", sessions + "/" + missing + "/cancel", key, "", "", 404, 1},
		"cancel a malformed id":           {"POST", sessions + "/x/cancel", key, "", "", 404, 1},
		"public":                          {"GET", public + "/" + id, "", "", "", 200, 1},
		"public, not there":               {"GET", public + "/" + missing, "", "", "", 404, 1},
		"public, a malformed id":          {"GET", public + "/x", "", "", "", 404, 0},
		"me":                              {"GET", me, key, "", "", 200, 1},
		"events":                          {"GET", events, key, "", "", 200, 1},
		"events after no cursor":          {"GET", events + "?after=x", key, "", "", 400, 1},
		"events with a dead key":          {"GET", events, dead, "", "", 401, 1},
		"rotate, and its override":        {"POST", rotate, forRotation, "", "", 200, 2},
		"no key":                          {"POST", sessions, "", `{"amountCents": 1}`, "", 401, 0},
		"a malformed key":                 {"POST", sessions, "hunter2", `{"amountCents": 1}`, "", 401, 0},
		"an unknown key":                  {"POST", sessions, f.newKey(published.ID("unknown")).Reveal(), `{"amountCents": 1}`, "", 401, 0},
		"a disabled key":                  {"POST", sessions, disabled, `{"amountCents": 1}`, "", 401, 0},
		"no such path":                    {"GET", "/api/v1/nothing", key, "", "", 404, 0},
		"no such method":                  {"DELETE", sessions, key, "", "", 405, 0},
		"preflight":                       {"OPTIONS", sessions, "", "", "", 204, 0},
		"the description":                 {"GET", "/openapi.yaml", "", "", "", 200, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if err := server.ConfigResetStat(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			var headers []string
			if test.idempotencyKey != "" {
				headers = []string{"Idempotency-Key", test.idempotencyKey}
			}
			got := r.call(test.method, test.path, test.key, test.body, headers...).want(t, test.status)
			if fresh := got.text("fullKey"); fresh != "" {
				f.issued = append(f.issued, fresh)
			}
			stats, err := server.Info(t.Context(), "commandstats").Result()
			if err != nil {
				t.Fatal(err)
			}
			if trips := sent(t, stats); trips != test.trips {
				t.Errorf("%d round trips, want %d:\n%s", trips, test.trips, stats)
			}
		})
	}
	// The replica counts a foreign address in Redis, seconds later. Its response waits for nothing.
	own.Pause()
	defer own.Resume()
	r.call(http.MethodPost, sessions, foreign, `{"amountCents": 1}`).want(t, http.StatusUnauthorized)
}

// sent counts the scripts that replicas sent. Redis counts the commands inside of scripts as well.
func sent(t *testing.T, commandstats string) (trips int) {
	t.Helper()
	for line := range strings.FieldsSeq(commandstats) {
		var calls int
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d", &calls); err == nil {
			trips += calls
		}
		if strings.HasPrefix(line, "cmdstat_eval:") {
			t.Errorf("a script was sent with its source: %s", line)
		}
	}
	return trips
}
