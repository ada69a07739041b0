// Package receivers runs the receivers of examples/ and the one in hack/receiver: they get events in every order, each twice, and must
// do each thing once.
package receivers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/logtest"
	"github.com/merchant-operator/merchant-operator/test/repository"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const secret = "whsec_dGhpcnR5LXR3byBieXRlcyBvZiB0aGUgbmV3IG9uZSE="

func TestReceivers_ActOnce(t *testing.T) {
	compiled := filepath.Join(t.TempDir(), "merchant")
	if err := repository.Build(compiled, "examples/go"); err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string][]string{
		"Go":     {compiled},
		"Node":   {"node", repository.Path("examples", "node", "merchant.mjs")},
		"Python": {"python3", repository.Path("examples", "python", "merchant.py")},
	} {
		t.Run(name, func(t *testing.T) {
			port := freePort(t)
			url, output := start(t, port, command[0], append(command[1:], "listen", port)...)
			all, want := deliveries(t)
			for _, d := range all {
				if status := post(t, url, d); status/100 != 2 {
					t.Fatalf("%s got %d: %s", d.id, status, d.body)
				}
			}
			got := strings.FieldsFunc(output.String(), func(r rune) bool { return r == '\n' })
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// hack/receiver only lists: each event once, those of a session by their sequence.
func TestReceiver_ListsInOrder(t *testing.T) {
	program := filepath.Join(t.TempDir(), "receiver")
	if err := repository.Build(program, "hack/receiver"); err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	url, _ := start(t, port, program, "--address", "127.0.0.1:"+port)
	all, _ := deliveries(t)
	want := map[string][]string{} // types of each session, in order
	for _, d := range all {
		if status := post(t, url, d); status/100 != 2 {
			t.Fatalf("%s got %d: %s", d.id, status, d.body)
		}
	}
	for name, session := range sessions {
		for _, c := range session.changes {
			want[name] = append(want[name], c.kind)
		}
	}
	answer, err := http.Get(strings.TrimSuffix(url, "/hooks") + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var events []struct {
		Type string `json:"type"`
		Body string `json:"body"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&events); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, e := range events {
		var body struct {
			Data struct {
				OrderRef string `json:"orderRef"`
			} `json:"data"`
		}
		if err := json.Unmarshal([]byte(e.Body), &body); err != nil {
			t.Fatal(err)
		}
		got[body.Data.OrderRef] = append(got[body.Data.OrderRef], e.Type)
	}
	delete(got, "") // events of no session
	if len(got) < len(want) {
		t.Errorf("it lists %d sessions", len(got))
	}
	for orderRef, types := range got {
		name, _, _ := strings.Cut(orderRef, ", ")
		if diff := cmp.Diff(want[name], types); diff != "" {
			t.Errorf("%s (-want +listed):\n%s", orderRef, diff)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := freeport.Choose()
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}

// start runs a receiver until the test ends, and returns its URL and what it prints.
func start(t *testing.T, port, program string, arguments ...string) (url string, output *logtest.Buffer) {
	t.Helper()
	output = &logtest.Buffer{}
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret)
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	url = "http://127.0.0.1:" + port + "/hooks"
	await.Seeing(t, time.Minute, "the receiver listens", func() (string, bool) {
		answer, err := http.Get(url)
		if err != nil {
			return output.String(), false
		}
		return "", answer.Body.Close() == nil
	})
	return url, output
}

// post signs a delivery like the dispatcher, and returns the status of the answer.
func post(t *testing.T, url string, d delivery) int {
	t.Helper()
	body := io.Reader(strings.NewReader(d.body))
	if len(d.body)%2 == 0 { // half of them chunked, without a Content-Length, as some proxies send what they have got
		body = io.NopCloser(body)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signature, err := webhook.Sign(d.id, now, []byte(d.body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("webhook-id", d.id)
	request.Header.Set("webhook-timestamp", fmt.Sprint(now.Unix()))
	request.Header.Set("webhook-signature", "v1,AAAA "+signature) // as during a rotation of the secret
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

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
