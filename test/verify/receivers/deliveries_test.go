package receivers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// change is one event of a session.
type change struct {
	kind, status, payment string
}

// sessions are the ways that sessions go, with what a shop must do, each once.
var sessions = map[string]struct {
	changes []change
	want    []string
}{
	"paid": {
		[]change{{"session.completed", "COMPLETED", "card-1"}},
		[]string{"deliver order ORDER"},
	},
	"paid twice": { // the issue of a receiver that ignores a lower sequence and delivers on session.completed
		[]change{{"session.created", "PENDING", ""}, {"session.completed", "COMPLETED", "card-1"}, {"session.late_payment", "COMPLETED", "card-2-ORDER"}},
		[]string{"deliver order ORDER", "note the refund of payment card-2-ORDER"},
	},
	"paid a wrong amount first": {
		[]change{
			{"session.payment_mismatch", "PENDING", "card-1-ORDER"}, {"session.completed", "COMPLETED", "card-2"},
			{"session.late_payment", "COMPLETED", "card-3-ORDER"},
		},
		[]string{"note the refund of payment card-1-ORDER", "deliver order ORDER", "note the refund of payment card-3-ORDER"},
	},
	"paid too late": {
		[]change{{"session.expired", "EXPIRED", ""}, {"session.late_payment", "EXPIRED", "card-1-ORDER"}},
		[]string{"cancel order ORDER", "note the refund of payment card-1-ORDER"},
	},
	"failed": {
		[]change{{"session.created", "PENDING", ""}, {"session.failed", "FAILED", "card-1"}},
		[]string{"cancel order ORDER"},
	},
	"cancelled": {
		[]change{{"session.cancelled", "CANCELLED", ""}},
		[]string{"cancel order ORDER"},
	},
}

// delivery is one request of the dispatcher.
type delivery struct{ id, body string }

// deliveries send the events of every session twice, in every order there is. Each order is a session of its own.
func deliveries(t *testing.T) (all []delivery, want []string) {
	t.Helper()
	for name, session := range sessions {
		var twice []int
		for i := range session.changes {
			twice = append(twice, i, i)
		}
		for n, order := range orders(twice) {
			orderRef := fmt.Sprintf("%s, order %d", name, n)
			refer := func(text string) string { return strings.ReplaceAll(text, "ORDER", orderRef) }
			for _, i := range order {
				c := session.changes[i]
				data := map[string]any{
					"sessionId": "ps_" + orderRef, "orderRef": orderRef, "status": c.status, "paymentRef": refer(c.payment), "sequence": i + 1,
				}
				if c.kind == "session.late_payment" || c.kind == "session.payment_mismatch" {
					data["payment"] = map[string]any{"amountCents": 1250}
				}
				body, err := json.Marshal(map[string]any{"type": c.kind, "livemode": true, "timestamp": "2026-11-21T09:45:00.005Z", "data": data})
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, delivery{fmt.Sprintf("evt_%s_%d", strings.ReplaceAll(orderRef, " ", "_"), i), string(body)})
			}
			for _, line := range session.want {
				want = append(want, refer(line))
			}
		}
	}
	for _, body := range []string{
		`{"type":"session.completed","livemode":false,"data":{"sessionId":"ps_test1","status":"COMPLETED","sequence":1}}`,
		`{"type":"session.late_payment","livemode":false,"data":{"sessionId":"ps_test1","status":"COMPLETED","paymentRef":"of a test","payment":{"amountCents":1},"sequence":2}}`,
		`{"type":"session.completed","data":{"sessionId":"ps_no_mode","status":"COMPLETED","sequence":1}}`,
		`{"type":"key.rotated","livemode":true,"data":{"keyId":"2yylmkzckvhj","generation":2}}`,
		`{"type":"something.new","livemode":true,"data":{"sessionId":"ps_new","status":"NEW","sequence":1}}`,
	} {
		all = append(all, delivery{"evt_" + fmt.Sprint(len(all)), body})
	}
	slices.Sort(want)
	return all, want
}

// orders are all different orders of some numbers, of which some are equal.
func orders(of []int) (all [][]int) {
	if len(of) == 0 {
		return [][]int{{}}
	}
	for i, first := range of {
		if slices.Contains(of[:i], first) {
			continue
		}
		for _, rest := range orders(slices.Delete(slices.Clone(of), i, i+1)) {
			all = append(all, append([]int{first}, rest...))
		}
	}
	return all
}
