package examples

import (
	"net/http"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// Whatever is lost between the till and the API, one refund is asked for. A till that asks again learns what became of it.
func TestRefund_Once(t *testing.T) {
	t.Parallel()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.create("1001")
			s.settle(id, "COMPLETED")
			proxy := newProxy(t, lost, status(http.StatusServiceUnavailable, "1"), cut)
			refund := func() (*program, int) {
				till := start(t, e, []string{"API_URL=" + proxy.url, "API_KEY=" + s.key}, "refund", id, "7", "500")
				return till, till.exit(t)
			}
			till, code := refund()
			if code != 0 || !strings.HasPrefix(till.stdout.String(), "refund rf_") || !strings.HasSuffix(till.stdout.String(), "\nstatus REQUESTED\n") {
				t.Errorf("exit code %d\n%s\n%s", code, &till.stdout, &till.stderr)
			}
			for _, asked := range proxy.requested() {
				if asked.idempotencyKey != "return-7" || asked.body != proxy.requested()[0].body {
					t.Errorf("it sent %+v, and first %+v", asked, proxy.requested()[0])
				}
			}
			read := s.call(http.MethodGet, fixture.Sessions+"/"+id, "")
			if requests, _ := read.Body["refundRequests"].([]any); len(requests) != 1 || !strings.Contains(string(read.Raw), `"amountCents":500`) {
				t.Errorf("the session is %s", read.Raw)
			}
			refundID := strings.TrimPrefix(till.lines()[0], "refund ")
			rejected := s.send(api.Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/refunds", s.rail,
				`{"paymentRef": "card-`+id+`", "refundRef": "`+refundID+`", "outcome": "REJECTED"}`)
			if rejected.Status != http.StatusOK {
				t.Fatalf("%d %s", rejected.Status, rejected.Raw)
			}
			if again, code := refund(); code != 1 || again.stdout.String() != "refund "+refundID+"\nstatus REJECTED\n" {
				t.Errorf("exit code %d\n%s\n%s", code, &again.stdout, &again.stderr)
			}
		})
	}
}

func TestRefund_Refused(t *testing.T) {
	t.Parallel()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.create("1001")
			_, narrow := s.ApiKey("narrow", "coffee", func(k *v1alpha1.ApiKey) { k.Spec.Permissions = v1alpha1.TillPermissions() })
			s.Eventually("the API accepts the key", func() bool { return s.send(api.Public, http.MethodGet, fixture.Me, narrow, "").Status == http.StatusOK })
			for key, says := range map[string]string{s.key: "refused: 409 ", narrow: "refused: 403 "} {
				till := start(t, e, []string{"API_URL=" + api.Public, "API_KEY=" + key}, "refund", id, "7", "500")
				if code := till.exit(t); code != 1 || !strings.Contains(till.stderr.String(), says) || till.stdout.String() != "" {
					t.Errorf("exit code %d, want %s\n%s", code, says, &till.stderr)
				}
			}
			for _, arguments := range [][]string{{"refund", id, "7"}, {"refund", "x", "7", "500"}, {"refund", id, "7", "5.00"}, {"refund", id + `/..`, "7", "500"}} {
				till := start(t, e, []string{"API_URL=" + api.Public}, arguments...)
				if code := till.exit(t); code != 2 || !strings.Contains(till.stderr.String(), "refund SESSION RETURN AMOUNT_CENTS") {
					t.Errorf("%q: exit code %d\n%s", arguments, code, &till.stderr)
				}
			}
		})
	}
}
