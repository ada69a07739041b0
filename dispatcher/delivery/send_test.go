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

func TestTheStatusDecides(t *testing.T) {
	tests := map[int]delivery.Result{
		410: {Verdict: delivery.Gone, Reason: "gone"},
	}
	for _, code := range []int{200, 201, 202, 204, 205, 226, 299} {
		tests[code] = delivery.Result{Verdict: delivery.Delivered, Reason: "delivered"}
	}
	for _, code := range []int{300, 301, 302, 303, 304, 307, 308} {
		tests[code] = delivery.Result{Reason: "redirect"}
	}
	for _, code := range []int{400, 401, 403, 404, 408, 409, 422, 429, 451, 499} {
		tests[code] = delivery.Result{Reason: "status_4xx"}
	}
	for _, code := range []int{500, 502, 503, 504, 599} {
		tests[code] = delivery.Result{Reason: "status_5xx"}
	}
	for _, code := range []int{600, 999} {
		tests[code] = delivery.Result{Reason: "status_other"}
	}
	r := receivePlain(t, func(w http.ResponseWriter, request *http.Request) {
		code, _ := strconv.Atoi(strings.TrimPrefix(request.URL.Path, "/"))
		w.Header().Set("Location", "/followed")
		w.WriteHeader(code)
	})
	for code, want := range tests {
		want.Status = code
		if got := send(t, r.trusting(), attempt(r.URL+"/"+strconv.Itoa(code))); got != want {
			t.Errorf("%d gives %+v, want %+v", code, got, want)
		}
	}
	if hits := len(r.all()); hits != len(tests) {
		t.Errorf("%d requests for %d attempts: a redirect was followed", hits, len(tests))
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
			if want := (delivery.Result{Verdict: delivery.Delivered, Status: 200, Reason: "delivered"}); got != want {
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

func TestConnectionsAreUsedAgain(t *testing.T) {
	for name, start := range map[string]func(testing.TB, http.HandlerFunc) *receiver{"HTTP/1.1": receivePlain, "HTTP/2": receive} {
		t.Run(name, func(t *testing.T) {
			r := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "thank you") })
			c := client(t, r.trusting())
			for range 5 {
				if got := c.Send(t.Context(), attempt(r.URL)); got.Verdict != delivery.Delivered {
					t.Fatalf("%+v", got)
				}
			}
			if dials := r.dials.Load(); dials != 1 {
				t.Errorf("%d connections for 5 attempts, want 1", dials)
			}
		})
	}
}
