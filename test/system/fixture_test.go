package system

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

const (
	sessions = fixture.Sessions
	me       = fixture.Me
	rotate   = fixture.Rotate
)

// tenant is a tenant of the shared installation, and calls its API.
type tenant struct{ fixture.Tenant }

func newTenant(t *testing.T) tenant {
	t.Helper()
	return tenant{fixture.NewTenant(t, shared.Client)}
}

// till applies the Merchant coffee, which the options change, and returns an ApiKey that every replica accepts.
func (s tenant) till(change ...func(*v1alpha1.Merchant)) (*v1alpha1.ApiKey, string) {
	s.T.Helper()
	s.Merchant("coffee", change...)
	apiKey, key := s.ApiKey("till", "coffee")
	s.eventuallyEverywhere(key, http.StatusOK)
	return apiKey, key
}

// call sends one request to one replica. headers are pairs of name and value. Other goroutines than
// the test's may call it: status 0 means that there was no answer, and the test has failed.
func (s tenant) call(replica int, method, path, key, body string, headers ...string) fixture.Answer {
	s.T.Helper()
	return s.send(shared.replicas[replica].Public, method, path, key, body, headers...)
}

// send sends one request with a bearer token, as call does.
func (s tenant) send(base, method, path, key, body string, headers ...string) fixture.Answer {
	s.T.Helper()
	got, err := fixture.Call(http.DefaultClient, base, method, path, key, body, headers...)
	if err != nil {
		s.T.Errorf("%s %s: %v", method, path, err)
	}
	return got
}

// try asks a replica whether it accepts a key and returns the status.
func (s tenant) try(replica int, key string) int {
	s.T.Helper()
	return s.call(replica, http.MethodGet, me, key, "").Status
}

// eventuallyStatus waits until a replica answers a key with the status, on merchant/me.
func (s tenant) eventuallyStatus(replica int, key string, status int) {
	s.T.Helper()
	s.Eventually(fmt.Sprintf("replica %d answers %d", replica, status), func() bool {
		return s.try(replica, key) == status
	})
}

// eventuallyEverywhere waits until every replica answers a key with the status.
func (s tenant) eventuallyEverywhere(key string, status int) {
	s.T.Helper()
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, status)
	}
}

// want fails the test unless the answer has the status.
func (s tenant) want(got fixture.Answer, status int) fixture.Answer {
	s.T.Helper()
	if got.Status != status {
		s.T.Fatalf("status %d, want %d: %s", got.Status, status, got.Raw)
	}
	return got
}

// wantStatus asks every replica for a session.
func (s tenant) wantStatus(key, id, status string) {
	s.T.Helper()
	for replica := range shared.replicas {
		read := s.want(s.call(replica, http.MethodGet, sessions+"/"+id, key, ""), http.StatusOK)
		if read.Body["status"] != status {
			s.T.Errorf("replica %d: status %v, want %s", replica, read.Body["status"], status)
		}
	}
}

// charge creates a session of 12.50 on one replica.
func (s tenant) charge(replica int, key string) (id string) {
	s.T.Helper()
	created := s.want(s.call(replica, http.MethodPost, sessions, key, `{"amountCents":1250,"orderRef":"1001"}`), http.StatusCreated)
	return created.Text("sessionId")
}

func (s tenant) cancel(replica int, key, id string) fixture.Answer {
	s.T.Helper()
	return s.call(replica, http.MethodPost, sessions+"/"+id+"/cancel", key, "")
}

// settle reports a payment to one replica's internal listener.
func (s tenant) settle(replica int, token, id, body string) fixture.Answer {
	s.T.Helper()
	return s.send(shared.replicas[replica].Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", token, body)
}

// report is what a rail says of a payment of 12.50.
func report(ref, outcome string) string {
	return fmt.Sprintf(`{"paymentRef":%q,"outcome":%q,"amountCents":1250}`, ref, outcome)
}

// receiver is a merchant's server.
type receiver struct {
	*inbox.Recorder

	url string
}

// newReceiver answers with the status that answer returns; nil: always 200.
func newReceiver(t *testing.T, answer func(before int, r *http.Request) (status int)) receiver {
	t.Helper()
	r := receiver{Recorder: inbox.NewRecorder(answer)}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// subscribe is a merchant option: its events go to the receiver.
func subscribe(to receiver, events ...v1alpha1.WebhookEvent) func(*v1alpha1.Merchant) {
	return func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: to.url + "/hooks", Events: events} }
}

// signingSecret waits for the merchant's own copy.
func (s tenant) signingSecret(merchant string) string {
	s.T.Helper()
	return s.Delivered(merchant+"-webhook", "secret")
}

// verify checks a delivery as a merchant's server would.
func (s tenant) verify(secret string, attempt inbox.Attempt) {
	s.T.Helper()
	if err := inbox.Verify(secret, []byte(attempt.Body), attempt.Header); err != nil {
		s.T.Errorf("%s is not signed with the merchant's secret: %v", attempt.ID, err)
	}
}
