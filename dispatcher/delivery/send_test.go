package delivery_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
)

func TestWhatAnEndpointReceives(t *testing.T) {
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
		proto: "HTTP/2.0", method: http.MethodPost, uri: "/hooks?token=s3cret&shop=7",
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

func TestAnAttemptEndsInTime(t *testing.T) {
	r := receive(t, func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() })
	opened := delivery.Options{AllowCIDRs: loopback, AllowHTTP: true}
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
func TestAnAnswerNeedNotEnd(t *testing.T) {
	tests := map[string]string{
		"more than is read": "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 5000),
		"and its chunks":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n" + strings.Repeat("x", 5000) + "\r\n",
	}
	for name, words := range tests {
		t.Run(name, func(t *testing.T) {
			options := delivery.Options{AllowCIDRs: loopback, AllowHTTP: true, Timeout: never}
			got := send(t, options, attempt(cleartext(speak(t, words, false))))
			if want := (delivery.Result{Outcome: delivery.Delivered, Status: 200, Reason: "delivered"}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestAnEndpointThatSwitchesProtocolsIsLeft(t *testing.T) {
	words := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tunnel\r\n\r\n"
	options := delivery.Options{AllowCIDRs: loopback, AllowHTTP: true, Timeout: never}
	got := send(t, options, attempt(cleartext(speak(t, words, false))))
	if want := (delivery.Result{Status: 101, Reason: "status_other"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestABodyThatStopsEndsWithTheTimeout(t *testing.T) {
	r := receive(t, func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.WriteString(w, "wait for it")
		_ = http.NewResponseController(w).Flush()
		<-request.Context().Done()
	})
	options := r.trusting()
	options.Timeout = 200 * time.Millisecond
	send(t, options, attempt(r.URL)) // that it returns is what counts
}

func TestWhoeverStopsWaitingHearsSo(t *testing.T) {
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

func TestNothingIsSentUnsigned(t *testing.T) {
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
