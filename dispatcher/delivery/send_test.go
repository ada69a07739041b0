package delivery_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
)

// The receiver offers HTTP/2, in which it could send frames between the attempts without end.
func TestSend_Request(t *testing.T) {
	r := receive(t, status(http.StatusOK))
	request := attempt(r.URL + "/hooks?token=s3cret&shop=7")
	request.Now = time.Unix(1_795_253_400, 999e6)
	send(t, r.trusting(), request)

	got := r.all()
	if len(got) != 1 {
		t.Fatalf("%d requests, want 1", len(got))
	}
	header := got[0].header
	if header.Get("webhook-signature") == "" {
		t.Error("not signed")
	}
	header.Del("webhook-signature") // the signature has its own tests
	want := delivered{
		proto: "HTTP/1.1", method: http.MethodPost, uri: "/hooks?token=s3cret&shop=7",
		host: strings.TrimPrefix(r.URL, "https://"), body: request.Body,
		header: http.Header{
			"Content-Type":      {"application/json"},
			"Content-Length":    {strconv.Itoa(len(request.Body))},
			"User-Agent":        {"merchant-operator-webhooks"},
			"Webhook-Id":        {request.ID},
			"Webhook-Timestamp": {"1795253400"},
		},
	}
	if diff := cmp.Diff(want, got[0], cmp.AllowUnexported(delivered{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The API description has each header that receivers get, as it is.
func TestSend_Documented(t *testing.T) {
	r := receive(t, status(http.StatusOK))
	request := attempt(r.URL)
	request.Secrets = []published.SigningSecret{published.NewSigningSecret(), published.NewSigningSecret()} // as during a rotation
	send(t, r.trusting(), request)
	header := r.all()[0].header

	document, err := openapitest.Closed(openapitest.Public)
	if err != nil {
		t.Fatal(err)
	}
	documented := []string{"Content-Type", "Content-Length"} // those of the body
	for _, parameter := range document.Webhooks["event"].Post.Parameters {
		name := http.CanonicalHeaderKey(parameter.Value.Name)
		documented = append(documented, name)
		if err := parameter.Value.Schema.Value.VisitJSON(header.Get(name), openapi3.EnableJSONSchema2020()); err != nil || len(header[name]) != 1 {
			t.Errorf("%s: %q: %v", name, header[name], err)
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(documented, slices.Sorted(maps.Keys(header))); diff != "" {
		t.Errorf("headers (-documented +sent):\n%s", diff)
	}
}

func TestSend_Timeout(t *testing.T) {
	r := receive(t, func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() })
	opened := delivery.Options{Rules: loopback, AllowHTTP: true}
	tests := map[string]struct {
		url     string
		options delivery.Options
	}{
		"no answer":     {r.URL, r.trusting()},
		"no handshake":  {overTLS(speak(t, "", false)), opened},
		"half a header": {cleartext(speak(t, "HTTP/1.1 200 OK\r\nX-", false)), opened},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.options.Timeout = 100 * time.Millisecond
			if got := send(t, test.options, attempt(test.url)); got != (delivery.Result{Reason: "timeout"}) {
				t.Errorf("got %+v, want timeout", got)
			}
		})
	}
}

// The answer has been given; what follows it is read a little, and not waited for.
func TestSend_EndlessAnswer(t *testing.T) {
	tests := map[string]string{
		"more than is read": "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 5000),
		"and its chunks":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n" + strings.Repeat("x", 5000) + "\r\n",
	}
	for name, words := range tests {
		t.Run(name, func(t *testing.T) {
			options := delivery.Options{Rules: loopback, AllowHTTP: true, Timeout: never}
			got := send(t, options, attempt(cleartext(speak(t, words, false))))
			if want := (delivery.Result{Outcome: delivery.Delivered, Status: 200, Reason: "delivered"}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestSend_SwitchingProtocols(t *testing.T) {
	words := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tunnel\r\n\r\n"
	options := delivery.Options{Rules: loopback, AllowHTTP: true, Timeout: never}
	got := send(t, options, attempt(cleartext(speak(t, words, false))))
	if want := (delivery.Result{Status: 101, Reason: "status_other"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSend_StalledBody(t *testing.T) {
	r := receive(t, func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.WriteString(w, "wait for it")
		_ = http.NewResponseController(w).Flush()
		<-request.Context().Done()
	})
	options := r.trusting()
	options.Timeout = 200 * time.Millisecond
	send(t, options, attempt(r.URL)) // that it returns is what counts
}

// A caller that stops waiting learns that.
func TestSend_Interrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := receive(t, func(_ http.ResponseWriter, request *http.Request) {
		cancel()
		<-request.Context().Done()
	})
	got := client(t, r.trusting()).Send(ctx, attempt(r.URL))
	if want := (delivery.Result{Reason: delivery.ReasonInterrupted}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestSend_Unsigned(t *testing.T) {
	r := receive(t, status(http.StatusOK))
	for name, secrets := range map[string][]published.SigningSecret{"none": nil, "an empty one": {{}}} {
		request := attempt(r.URL)
		request.Secrets = secrets
		if got := send(t, r.trusting(), request); got != (delivery.Result{Reason: "unsigned"}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if hits := len(r.all()); hits != 0 {
		t.Errorf("%d requests were sent", hits)
	}
}

// Either of the secrets of a rotation is enough to verify with; a third is not.
func TestSign_EachSecretVerifies(t *testing.T) {
	r := receive(t, status(http.StatusNoContent))
	newer, older, foreign := published.NewSigningSecret(), published.NewSigningSecret(), published.NewSigningSecret()
	request := attempt(r.URL + "/hooks")
	request.Secrets = []published.SigningSecret{newer, older}
	send(t, r.trusting(), request)

	got := r.all()[0]
	for name, secret := range map[string]published.SigningSecret{"newer": newer, "older": older} {
		if err := verify(t, secret, got.body, got.header); err != nil {
			t.Errorf("with the %s secret: %v", name, err)
		}
		if err := verify(t, secret, append(got.body[:0:0], "{}"...), got.header); err == nil {
			t.Errorf("with the %s secret: a changed body is verified", name)
		}
	}
	if err := verify(t, foreign, got.body, got.header); err == nil {
		t.Error("verified with a secret that did not sign")
	}
	if signed := strings.Fields(got.header.Get("webhook-signature")); len(signed) != 2 {
		t.Errorf("signatures %q, want one for each secret", signed)
	}
}

func TestSign_CoversIDAndTime(t *testing.T) {
	r := receive(t, status(http.StatusNoContent))
	request := attempt(r.URL)
	send(t, r.trusting(), request)
	got := r.all()[0]
	for name, value := range map[string]string{
		"webhook-id": "evt_other", "webhook-timestamp": "1700000000",
	} {
		changed := got.header.Clone()
		changed.Set(name, value)
		webhook, err := standardwebhooks.NewWebhook(request.Secrets[0].Reveal())
		if err != nil {
			t.Fatal(err)
		}
		if webhook.VerifyIgnoringTimestamp(got.body, changed) == nil {
			t.Errorf("verified with another %s", name)
		}
	}
}

// A receiver must recognize an event it has seen, and an old signature.
func TestSign_LaterAttempt(t *testing.T) {
	r := receive(t, status(http.StatusInternalServerError))
	c := client(t, r.trusting())
	first := attempt(r.URL)
	second := first
	second.Now = first.Now.Add(5 * time.Second)
	c.Send(t.Context(), first)
	c.Send(t.Context(), second)

	got := r.all()
	if len(got) != 2 || !bytes.Equal(got[0].body, got[1].body) {
		t.Fatalf("bodies differ: %q", got)
	}
	if got[0].header.Get("webhook-id") != got[1].header.Get("webhook-id") {
		t.Error("ids differ")
	}
	if got[0].header.Get("webhook-timestamp") == got[1].header.Get("webhook-timestamp") {
		t.Error("both attempts carry the same time")
	}
	for _, attempt := range got {
		if err := verify(t, first.Secrets[0], attempt.body, attempt.header); err != nil {
			t.Error(err)
		}
	}
}

func verify(t testing.TB, secret published.SigningSecret, body []byte, header http.Header) error {
	t.Helper()
	webhook, err := standardwebhooks.NewWebhook(secret.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	return webhook.Verify(body, header)
}

// The caller may lose its right to send while the connection is made. Then the receiver gets nothing, over a new connection or a kept one.
func TestSend_NotReady(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *receiver{
		"HTTP":  receivePlain,
		"HTTPS": receive,
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, status(http.StatusOK))
			c := client(t, r.trusting())
			request := attempt(r.URL)
			for i, ready := range []bool{false, true, false, true} {
				request.Ready = func() bool { return ready }
				want := delivery.Result{Reason: delivery.ReasonInterrupted}
				if ready {
					want = delivery.Result{Outcome: delivery.Delivered, Status: http.StatusOK, Reason: delivery.ReasonDelivered}
				}
				if got := c.Send(t.Context(), request); got != want {
					t.Errorf("attempt %d: got %+v, want %+v", i, got, want)
				}
			}
			if hits := len(r.all()); hits != 2 {
				t.Errorf("%d requests were sent, want 2", hits)
			}
		})
	}
}
