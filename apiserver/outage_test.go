package apiserver_test

import (
	"net/http"
	"testing"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// Without Redis nothing is taken for granted, and nothing but time mends it.
func TestRedisAway(t *testing.T) {
	for name, outage := range map[string]struct{ begin, end func(*redistest.Server) }{
		"stopped": {(*redistest.Server).Stop, func(s *redistest.Server) { s.Start() }},
		"frozen":  {(*redistest.Server).Pause, (*redistest.Server).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			key := f.key("till", f.merchant("acme"))
			own := redistest.Start(t)
			r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
			id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")

			rail := f.rail("bank")

			outage.begin(own)
			for _, request := range []struct{ method, path, key, body string }{
				{http.MethodPost, sessions, key, `{"amountCents": 1}`},
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
				t.Error("a rail is not told when to report again")
			}
			r.call(http.MethodGet, me, f.newKey(key[8:20]).Reveal()[:58], "").want(t, http.StatusUnauthorized)
			if status := statusOf(r.ops + "/readyz"); status != http.StatusOK {
				t.Errorf("/readyz %d: an outage of Redis must not take every replica out of service", status)
			}
			if status := statusOf(r.ops + "/healthz"); status != http.StatusOK {
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

// A replica that Redis never answered may not be able to reach it at all: it waits, and is not ready.
func TestStartWithoutRedis(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	own := redistest.Start(t)
	own.Stop()
	r := f.launch(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	r.awaitProbes()
	eventually(t, "it listens", func() bool { return r.listening("public") != "" })
	r.url = r.listening("public")
	r.call(http.MethodGet, me, key, "").want(t, http.StatusServiceUnavailable)
	if status := statusOf(r.ops + "/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz %d before Redis has answered once", status)
	}
	own.Start()
	r.awaitReady()
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
}
