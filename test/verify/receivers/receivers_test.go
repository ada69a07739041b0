// Package receivers runs the receivers of examples/ and the one in hack/receiver: they get events in every order, each twice, and must
// do each thing once.
package receivers

import (
	"encoding/json"
	"fmt"
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

func TestExampleReceiversActOnce(t *testing.T) {
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
func TestTheListingReceiverSorts(t *testing.T) {
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
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(d.body))
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
