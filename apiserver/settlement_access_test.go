package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver"
)

const (
	notAccepted = "missing or invalid token"
	notAllowed  = "account is not allowed to settle sessions"
)

func TestWhoMaySettle(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail, stranger := f.rail("bank"), f.account("stranger")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")

	for name, authorization := range map[string][]string{
		"no header":            nil,
		"an empty one":         {""},
		"no token":             {"Bearer "},
		"another scheme":       {"Basic " + rail},
		"no scheme":            {rail},
		"two tokens":           {"Bearer " + rail, "Bearer " + rail},
		"two in one":           {"Bearer " + rail + ", Bearer " + rail},
		"a merchant's API key": {"Bearer " + key},
		"a forged token":       {"Bearer " + rail[:len(rail)-8] + "AAAAAAAA"},
		"nonsense":             {"Bearer a.b.c"},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			for _, line := range authorization {
				headers = append(headers, "Authorization", line)
			}
			got := r.report(id, "", paid(1), headers...)
			got.wantError(t, http.StatusUnauthorized, notAccepted)
			if got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("WWW-Authenticate %q", got.header.Get("WWW-Authenticate"))
			}
		})
	}
	r.report(id, stranger, paid(1)).wantError(t, http.StatusForbidden, notAllowed)

	// Whoever may not settle learns nothing of sessions or reports.
	for _, path := range []string{id, "ps_00000000000000000000000000", "x"} {
		for _, body := range []string{paid(1), `{`, badReports["200 KB"].body} {
			r.report(path, "", body).wantError(t, http.StatusUnauthorized, notAccepted)
			r.report(path, stranger, body).wantError(t, http.StatusForbidden, notAllowed)
		}
	}
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("the session is %s", status)
	}
	r.report(id, "", paid(1), "Authorization", "bearer  "+rail).want(t, http.StatusOK)
}

// briefly has verdicts on rails forgotten at once.
func briefly(o *apiserver.Options) { o.RailCacheTTL = time.Nanosecond }

func TestARailThatIsDismissed(t *testing.T) {
	f := newFixture(t)
	rail := f.rail("bank")
	r := f.start(briefly)
	const missing = "ps_00000000000000000000000000"
	r.report(missing, rail, paid(1)).want(t, http.StatusNotFound)
	f.dismiss("bank")
	r.report(missing, rail, paid(1)).wantError(t, http.StatusForbidden, notAllowed)
	f.admit("bank")
	r.report(missing, rail, paid(1)).want(t, http.StatusNotFound)
}

func TestRailsWithoutTheKubernetesAPI(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail, unknown := f.rail("bank"), f.rail("unknown")
	remembering := f.start(func(o *apiserver.Options) { o.RailCacheTTL = time.Hour })
	forgetful := f.start(briefly)
	id := remembering.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for _, r := range []*replica{remembering, forgetful} {
		r.report("x", rail, "").want(t, http.StatusNotFound)
		r.proxy.Cut()
	}
	for _, got := range []result{remembering.report(id, unknown, paid(1)), forgetful.report(id, rail, paid(1))} {
		got.wantError(t, http.StatusServiceUnavailable, reportAgain)
		if got.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	remembering.report(id, rail, paid(1)).want(t, http.StatusOK)
	forgetful.proxy.Mend()
	forgetful.report(id, rail, paid(1)).want(t, http.StatusOK)
}

func TestTheAudienceOfRails(t *testing.T) {
	f := newFixture(t)
	rail := f.rail("bank")
	r := f.start(func(o *apiserver.Options) { o.RailAudience = "settlements" })
	r.report("x", rail, "").wantError(t, http.StatusUnauthorized, notAccepted)
	r.report("x", f.token("bank", "settlements"), "").want(t, http.StatusNotFound)
}

// The Kubernetes API keeps an audit log, and a session's id is a payer's capability.
func TestTheKubernetesAPILearnsNoSessionID(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	rail := f.rail("bank")
	asked := f.bodiesToKubernetes()
	r := f.start(briefly)
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.report(id, rail, paid(1)).want(t, http.StatusOK)
	all := asked()
	if !strings.Contains(all, "subjectaccessreviews") || strings.Contains(all, id[5:]) {
		t.Errorf("the Kubernetes API was asked:\n%s", all)
	}
}
