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

// A request costs one round trip, however it ends; one whose key is unknown or whose caller is
// foreign costs none, so that neither load nor timing distinguishes the two.
func TestRoundTripsOfARequest(t *testing.T) {
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
	r.call(http.MethodGet, sessions+"?endedFrom=1", key, "").want(t, http.StatusOK)
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
		"list what has ended":             {"GET", sessions + "?endedFrom=1", key, "", "", 200, 1},
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
		"a foreign address":               {"POST", sessions, foreign, `{"amountCents": 1}`, "", 401, 0},
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
