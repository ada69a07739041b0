package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

const (
	// tenantWriteTimeout is how long a write into a tenant's namespace may take: the default timeout of an admission webhook, which the tenant
	// may run. After it the write counts as failed; it may have happened.
	tenantWriteTimeout = 10 * time.Second
	// eventTimeout is how long the write of an Event may take. People miss an Event; nothing waits for it.
	eventTimeout = 2 * time.Second
	// maxEvents and maxEventsOfNamespace are how many Events are written at once. client-go begins as many as there are.
	maxEvents, maxEventsOfNamespace = 32, 4
)

// limitTenantWrites bounds the writes into other namespaces than the operator's own, by their time, and of Events also by their number.
func limitTenantWrites(config *rest.Config, own string) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &tenantWrites{RoundTripper: next, own: own, timeout: tenantWriteTimeout, eventTimeout: eventTimeout}
	})
}

// tenantWrites is the transport with these bounds. A tenant decides how long its admission webhooks take, and what they answer.
type tenantWrites struct {
	http.RoundTripper

	own                   string // the credentials namespace
	timeout, eventTimeout time.Duration

	mu     sync.Mutex
	events map[string]int // in progress, by namespace
	all    int
}

// RoundTrip implements http.RoundTripper.
func (t *tenantWrites) RoundTrip(request *http.Request) (*http.Response, error) {
	_, after, namespaced := strings.Cut(request.URL.Path, "/namespaces/")
	namespace, resource, _ := strings.Cut(after, "/")
	switch {
	case !namespaced || namespace == t.own || request.Method == http.MethodGet:
		return t.RoundTripper.RoundTrip(request)
	case resource == "events" || strings.HasPrefix(resource, "events/"):
		return t.writeEvent(request, namespace)
	}
	return t.write(request, t.timeout)
}

// write sends the request with a deadline. client-go must not try again and again, and sleep in between, because a webhook said so.
func (t *tenantWrites) write(request *http.Request, timeout time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(request.Context(), timeout)
	response, err := t.RoundTripper.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	response.Header.Del("Retry-After")
	response.Body = cancelledBody{response.Body, cancel}
	return response, nil
}

// writeEvent writes an Event, if there is room. The count of a repeated Event is not written: client-go holds a lock that all Events need while it
// writes counts, so that one slow webhook would stop the Events of everybody. An Event that is dropped, or that was not written in time, has an answer, so that client-go
// does not write it again: it would, twelve times, after an error of the connection.
func (t *tenantWrites) writeEvent(request *http.Request, namespace string) (*http.Response, error) {
	if request.Method == http.MethodPatch {
		return counted(request, namespace), nil
	}
	if !t.begin(namespace) {
		return dropped(request), nil
	}
	defer t.end(namespace)
	response, err := t.write(request, t.eventTimeout)
	if err != nil && request.Context().Err() == nil {
		return dropped(request), nil
	}
	return response, err
}

func (t *tenantWrites) begin(namespace string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= maxEvents || t.events[namespace] >= maxEventsOfNamespace {
		return false
	}
	if t.events == nil {
		t.events = map[string]int{}
	}
	t.all++
	t.events[namespace]++
	return true
}

func (t *tenantWrites) end(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	t.events[namespace]--
	if t.events[namespace] == 0 {
		delete(t.events, namespace)
	}
}

// dropped is the response to an Event that is not written.
func dropped(request *http.Request) *http.Response {
	return answer(request, http.StatusTooManyRequests, nil)
}

// counted is the response to the count of an Event, which is not written. client-go would report each other response as an error. After 404 it
// would create the Event again. It keeps what the response has instead of the Event, and needs the names there.
func counted(request *http.Request, namespace string) *http.Response {
	event := eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: path.Base(request.URL.Path)}}
	event.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	body, err := json.Marshal(event)
	if err != nil { // it has no field that could fail
		return dropped(request)
	}
	return answer(request, http.StatusOK, body)
}

// answer is the response to a request that is not sent.
func answer(request *http.Request, status int, body []byte) *http.Response {
	if request.Body != nil {
		_ = request.Body.Close()
	}
	return &http.Response{
		Status: fmt.Sprint(status, " ", http.StatusText(status)), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(body)), Request: request,
	}
}

// cancelledBody ends the context of its request when it is closed.
type cancelledBody struct {
	io.ReadCloser

	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b cancelledBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
