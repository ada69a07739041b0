package examples

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/freeport"
)

// receiver is an example that gets webhooks: `listen`, or `verify` of one after the other.
type receiver struct {
	deliver func(body string, header http.Header) (status int)
	printed func() []string // lines
}

func newReceiver(t *testing.T, e example, secret string) receiver {
	t.Helper()
	env := []string{"WEBHOOK_SECRET=" + secret}
	if !e.listens {
		return newVerifier(t, e, env)
	}
	port, err := freeport.Choose()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, e, env, "listen", strconv.Itoa(port))
	url := fmt.Sprintf("http://127.0.0.1:%d/hooks", port)
	fixture.Tenant{T: t}.Eventually("the receiver listens", func() bool {
		answer, err := http.Get(url)
		return err == nil && answer.Body.Close() == nil
	})
	return receiver{printed: p.lines, deliver: func(body string, header http.Header) int {
		request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0
		}
		request.Header = header
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}}
}

// newVerifier has each webhook verified by a process of its own.
func newVerifier(t *testing.T, e example, env []string) receiver {
	t.Helper()
	directory, n, printed := t.TempDir(), atomic.Int32{}, make(chan string, 100)
	var lines []string
	return receiver{
		printed: func() []string {
			for len(printed) > 0 {
				lines = append(lines, <-printed)
			}
			return lines
		},
		deliver: func(body string, header http.Header) int {
			var text bytes.Buffer
			name := filepath.Join(directory, strconv.Itoa(int(n.Add(1))))
			if err := header.Write(&text); err != nil {
				t.Error(err)
			}
			for file, content := range map[string][]byte{name + ".headers": text.Bytes(), name + ".body": []byte(body)} {
				if err := os.WriteFile(file, content, 0o600); err != nil {
					t.Error(err)
				}
			}
			p := start(t, e, env, "verify", name+".headers", name+".body")
			switch code := p.exit(t); {
			case code == 0:
				printed <- strings.TrimSuffix(p.stdout.String(), "\n")
				return http.StatusNoContent
			case code == 1 && strings.HasPrefix(p.stderr.String(), "refused: "):
				return http.StatusUnauthorized
			default:
				t.Errorf("exit code %d\n%s", code, &p.stderr)
				return 0
			}
		},
	}
}

// line is what the receiver prints of the event of a paid session.
func (e example) line(order, id string) string {
	if e.listens {
		return "deliver order " + order
	}
	return id
}

func TestReceiver_Signatures(t *testing.T) {
	t.Parallel()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			var current atomic.Pointer[receiver]
			var hooks *inbox.Recorder
			hooks = inbox.NewRecorder(func(n int, _ *http.Request) int {
				attempt := hooks.Attempts()[n]
				return current.Load().deliver(attempt.Body, attempt.Header)
			})
			server := httptest.NewServer(hooks)
			t.Cleanup(server.Close)
			s := newShop(t, func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: server.URL + "/hooks"} })
			var want []string
			// pay has a session paid, and returns the request that said so.
			pay := func(order string) inbox.Attempt {
				t.Helper()
				id := s.create(order)
				s.settle(id, "COMPLETED")
				s.Eventually("the event of "+order+" is answered", func() bool {
					about := hooks.About(id)
					return len(about) > 0 && about[0].Status != 0
				})
				first := hooks.About(id)[0]
				if first.Status != http.StatusNoContent {
					t.Errorf("order %s gets %d", order, first.Status)
				}
				want = append(want, e.line(order, first.ID))
				return first
			}

			secret := s.Delivered("coffee-webhook", "secret")
			old := newReceiver(t, e, secret)
			current.Store(&old)
			first := pay("1001")
			if e.listens { // an event whose 2xx was lost is sent again
				if status := old.deliver(first.Body, first.Header); status != http.StatusNoContent {
					t.Errorf("the same event again gets %d", status)
				}
			}
			for name, status := range forge(t, old, secret, first) {
				if status != http.StatusUnauthorized {
					t.Errorf("%s gets %d, want 401", name, status)
				}
			}

			s.Change(s.merchant, func() { s.merchant.Spec.Webhook.RotationTrigger = "again" })
			for n := 1; ; n++ {
				event := pay(fmt.Sprintf("during-%d", n))
				if len(strings.Fields(event.Header.Get("webhook-signature"))) == 2 {
					break
				}
			}
			fresh := newReceiver(t, e, s.Delivered("coffee-webhook", "secret"))
			current.Store(&fresh)
			pay("1002")
			printed := func() []string { return slices.Concat(old.printed(), fresh.printed()) }
			s.Eventually("everything is printed", func() bool { return len(printed()) >= len(want) })
			if diff := cmp.Diff(want, printed()); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
			for _, attempt := range hooks.Attempts() {
				if attempt.Status != http.StatusNoContent {
					t.Errorf("%s got %d", attempt.ID, attempt.Status)
				}
			}
		})
	}
}

// forge sends what a stranger could make of an event, and returns the statuses of the answers.
func forge(t *testing.T, to receiver, secret string, genuine inbox.Attempt) map[string]int {
	t.Helper()
	const foreign = "whsec_dGhpcnR5LXR3byBieXRlcyBvZiBhbm90aGVyIG9uZSE="
	signed := func(secret, id string, at time.Time) http.Header {
		webhook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		signature, err := webhook.Sign(id, at, []byte(genuine.Body))
		if err != nil {
			t.Fatal(err)
		}
		return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)}, "Webhook-Signature": {signature}}
	}
	with := func(name, value string) http.Header {
		header := genuine.Header.Clone()
		header.Set(name, value)
		return header
	}
	now := time.Now()
	return map[string]int{
		"a foreign signature":     to.deliver(genuine.Body, signed(foreign, "evt_forged", now)),
		"an old event":            to.deliver(genuine.Body, signed(secret, "evt_old", now.Add(-6*time.Minute))),
		"an event of the future":  to.deliver(genuine.Body, signed(secret, "evt_future", now.Add(6*time.Minute))),
		"a changed body":          to.deliver(strings.Replace(genuine.Body, "1250", "9250", 1), genuine.Header),
		"a body with a space":     to.deliver(genuine.Body+" ", genuine.Header),
		"another id":              to.deliver(genuine.Body, with("Webhook-Id", "evt_other")),
		"another timestamp":       to.deliver(genuine.Body, with("Webhook-Timestamp", strconv.FormatInt(now.Unix()+1, 10))),
		"no timestamp":            to.deliver(genuine.Body, with("Webhook-Timestamp", "")),
		"a timestamp in words":    to.deliver(genuine.Body, with("Webhook-Timestamp", "now")),
		"no signature":            to.deliver(genuine.Body, with("Webhook-Signature", "")),
		"a signature of no bytes": to.deliver(genuine.Body, with("Webhook-Signature", "v1, v1")),
	}
}
