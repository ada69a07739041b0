package inbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/merchant-operator/merchant-operator/test/logtest"
)

var (
	current = "whsec_" + base64.StdEncoding.EncodeToString([]byte("thirty-two bytes of the new one!"))
	old     = "whsec_" + base64.StdEncoding.EncodeToString([]byte("thirty-two bytes of the old one!"))
	foreign = "whsec_" + base64.StdEncoding.EncodeToString([]byte("thirty-two bytes of another one!"))
)

func TestInbox_Verified(t *testing.T) {
	server, printed := start(t, false, current, old)
	for n, secret := range []string{current, old} {
		id, body := fmt.Sprintf("evt_%d", n), eventBody("ps_1", int64(n+1))
		if status := post(t, server, secret, id, body, time.Now()); status != http.StatusNoContent {
			t.Errorf("with secret %d: %d", n+1, status)
		}
	}
	want := []Event{
		{ID: "evt_0", Type: "session.completed", Verified: true, Attempts: 1, Body: eventBody("ps_1", 1)},
		{ID: "evt_1", Type: "session.completed", Verified: true, Attempts: 1, Body: eventBody("ps_1", 2)},
	}
	assertEvents(t, server, want)
	if got, want := printed.String(), "session.completed ps_1 COMPLETED sequence 1 evt_0\n"; !strings.HasPrefix(got, want) {
		t.Errorf("printed %q, want it to begin with %q", got, want)
	}
}

func TestInbox_NotVerified(t *testing.T) {
	server, _ := start(t, false, current)
	body := eventBody("ps_1", 1)
	if status := post(t, server, foreign, "evt_1", body, time.Now()); status != http.StatusUnauthorized {
		t.Errorf("another's signature gives %d", status)
	}
	if status := post(t, server, current, "evt_1", body, time.Now().Add(-time.Hour)); status != http.StatusUnauthorized {
		t.Errorf("an old signature gives %d", status)
	}
	answer, err := http.Post(server.URL, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("no signature gives %d", answer.StatusCode)
	}
	assertEvents(t, server, []Event{})
}

func TestInbox_AcceptUnverified(t *testing.T) {
	server, printed := start(t, true, current)
	body := eventBody("ps_1", 1)
	post(t, server, foreign, "evt_1", body, time.Now())
	post(t, server, current, "evt_1", body, time.Now()) // which the forged one must not hide
	assertEvents(t, server, []Event{
		{ID: "evt_1", Type: "session.completed", Attempts: 1, Body: body},
		{ID: "evt_1", Type: "session.completed", Verified: true, Attempts: 1, Body: body},
	})
	if marks := strings.Count(printed.String(), "NOT VERIFIED"); marks != 1 {
		t.Errorf("printed %q", printed)
	}
}

func TestInbox_RepeatedEvent(t *testing.T) {
	server, printed := start(t, false, current)
	for range 3 {
		post(t, server, current, "evt_1", eventBody("ps_1", 1), time.Now())
	}
	assertEvents(t, server, []Event{
		{ID: "evt_1", Type: "session.completed", Verified: true, Attempts: 3, Body: eventBody("ps_1", 1)},
	})
	if !strings.Contains(printed.String(), "(seen before, attempt 3)") {
		t.Errorf("printed %q", printed)
	}
}

func TestInbox_OtherBytes(t *testing.T) {
	server, _ := start(t, false, current)
	first, second := eventBody("ps_1", 1), eventBody("ps_1", 2)
	post(t, server, current, "evt_1", first, time.Now())
	post(t, server, current, "evt_1", second, time.Now())
	assertEvents(t, server, []Event{
		{ID: "evt_1", Type: "session.completed", Verified: true, Attempts: 1, Body: first},
		{ID: "evt_1", Type: "session.completed", Verified: true, Attempts: 1, Body: second},
	})
}

func TestInbox_FailingEndpoint(t *testing.T) {
	handler, err := New(Options{
		Secrets: []string{current}, Log: io.Discard, Status: func(*http.Request) int { return http.StatusServiceUnavailable },
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	if status := post(t, server, current, "evt_1", eventBody("ps_1", 1), time.Now()); status != http.StatusServiceUnavailable {
		t.Errorf("answered %d", status)
	}
	if events := handler.Events(); len(events) != 1 {
		t.Errorf("%d events, want 1", len(events))
	}
}

func TestInbox_OrderOfSession(t *testing.T) {
	server, printed := start(t, false, current)
	for _, step := range []struct {
		session  string
		sequence int64
	}{{"ps_1", 1}, {"ps_2", 9}, {"ps_1", 3}, {"ps_1", 2}, {"ps_2", 10}} {
		id := fmt.Sprintf("evt_%s_%d", step.session, step.sequence)
		post(t, server, current, id, eventBody(step.session, step.sequence), time.Now())
	}
	var order []string
	for _, e := range list(t, server) {
		order = append(order, e.ID)
	}
	want := []string{"evt_ps_1_1", "evt_ps_2_9", "evt_ps_1_2", "evt_ps_1_3", "evt_ps_2_10"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if late := strings.Count(printed.String(), "late: "); late != 1 {
		t.Errorf("printed %q, want one that is late", printed)
	}
}

func TestInbox_Bounded(t *testing.T) {
	var box Inbox
	for n := range kept + 10 {
		box.put(Event{ID: fmt.Sprint(n), Attempts: 1})
	}
	if events := box.Events(); len(events) != kept || events[0].ID != "10" {
		t.Errorf("%d events, the first is %s", len(events), events[0].ID)
	}
	server, _ := start(t, true)
	if status := post(t, server, current, "evt_1", strings.Repeat(" ", maxBody+1), time.Now()); status != http.StatusBadRequest {
		t.Errorf("a large body gives %d", status)
	}
}

func TestInbox_NoEvent(t *testing.T) {
	server, _ := start(t, false, current)
	for _, body := range []string{"", "[]", "{}", `{"type":1}`, "text"} {
		if status := post(t, server, current, "evt_1", body, time.Now()); status != http.StatusBadRequest {
			t.Errorf("%q gives %d", body, status)
		}
	}
}

// start returns a receiver, and what it prints.
func start(t *testing.T, acceptUnverified bool, secrets ...string) (*httptest.Server, *logtest.Buffer) {
	t.Helper()
	var printed logtest.Buffer
	handler, err := New(Options{Secrets: secrets, AcceptUnverified: acceptUnverified, Log: &printed})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server, &printed
}

func eventBody(session string, sequence int64) string {
	return fmt.Sprintf(`{"type":"session.completed","data":{"sessionId":%q,"status":"COMPLETED","sequence":%d}}`, session, sequence)
}

// post signs as the dispatcher does and returns the answer's status.
func post(t *testing.T, server *httptest.Server, secret, id, body string, at time.Time) int {
	t.Helper()
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := webhook.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, server.URL+"/any/path", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("webhook-id", id)
	request.Header.Set("webhook-timestamp", fmt.Sprint(at.Unix()))
	request.Header.Set("webhook-signature", signature)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func list(t *testing.T, server *httptest.Server) []Event {
	t.Helper()
	answer, err := http.Get(server.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	events := []Event(nil)
	if err := json.NewDecoder(answer.Body).Decode(&events); err != nil {
		t.Fatal(err)
	}
	return events
}

func assertEvents(t *testing.T, server *httptest.Server, want []Event) {
	t.Helper()
	if diff := cmp.Diff(want, list(t, server), cmpopts.IgnoreUnexported(Event{})); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
