package controllers

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
)

// Only a write into a tenant's namespace has the deadline: a restriction, and a watch, may take longer.
func TestTenantWrites(t *testing.T) {
	const held = 50 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(held):
		}
	}))
	defer server.Close()
	client := &http.Client{Transport: &tenantWrites{RoundTripper: http.DefaultTransport, own: "credentials", timeout: time.Nanosecond}}
	for name, tc := range map[string]struct {
		method, path string
		ends         bool
	}{
		"a Secret of a tenant":   {http.MethodPost, "/api/v1/namespaces/shops/secrets", true},
		"a status":               {http.MethodPatch, "/apis/merchant-operator.io/v1alpha1/namespaces/shops/apikeys/till/status", true},
		"a published Secret":     {http.MethodPut, "/api/v1/namespaces/credentials/secrets/key-a", false},
		"a read":                 {http.MethodGet, "/api/v1/namespaces/shops/secrets/till-key", false},
		"a watch of the cluster": {http.MethodGet, "/api/v1/secrets", false},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), tc.method, server.URL+tc.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err == nil {
				_ = response.Body.Close()
			}
			if ended := errors.Is(err, context.DeadlineExceeded); ended != tc.ends {
				t.Errorf("ended: %t (%v)", ended, err)
			}
		})
	}
}

// A tenant whose webhook holds Events, and whose objects change without end, has a few Events in progress, and a neighbour's are written.
func TestTenantWrites_EventsOfNeighbour(t *testing.T) {
	held, reached := make(chan struct{}), make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/namespaces/slow/") {
			reached <- struct{}{}
			<-held
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	transport := &tenantWrites{RoundTripper: http.DefaultTransport, own: "credentials", timeout: time.Hour, eventTimeout: time.Hour}
	post := func(namespace string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/apis/events.k8s.io/v1/namespaces/"+namespace+"/events", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	var writing sync.WaitGroup
	for range maxEventsOfNamespace {
		writing.Go(func() {
			if status := post("slow"); status != http.StatusCreated {
				t.Errorf("an Event in progress gets %d", status)
			}
		})
		<-reached
	}
	if status := post("slow"); status != http.StatusTooManyRequests {
		t.Errorf("one Event more of the tenant gets %d", status)
	}
	if status := post("neighbour"); status != http.StatusCreated {
		t.Errorf("an Event of the neighbour gets %d", status)
	}
	close(held)
	writing.Wait()
	if status := post("slow"); status != http.StatusCreated {
		t.Errorf("an Event after those gets %d", status)
	}
}

// client-go holds a lock that all Events need while it writes the counts of repeated Events. It gets its response from the operator, and neither
// tries again nor creates the Event anew.
func TestTenantWrites_CountsOfEvents(t *testing.T) {
	requests := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.Method
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	limitTenantWrites(config, "credentials")
	client, err := eventsclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	sink := events.EventSinkImpl{Interface: client}
	repeated := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till.1"}, Series: &eventsv1.EventSeries{Count: 2},
	}
	written, err := sink.Patch(t.Context(), repeated, []byte(`{"series":{"count":2}}`))
	if err != nil || written.Namespace != "shops" || written.Name != "till.1" {
		t.Errorf("the count of an Event: %+v, %v", written, err)
	}
	repeated.Namespace = "credentials"
	_, _ = sink.Patch(t.Context(), repeated, []byte(`{"series":{"count":2}}`))
	close(requests)
	var got []string
	for method := range requests {
		got = append(got, method)
	}
	if want := []string{http.MethodPatch}; !slices.Equal(got, want) {
		t.Errorf("the API server got %v, want %v: that of the operator's own namespace", got, want)
	}
}

// A webhook that denies with "try again later" does not make client-go sleep in a worker.
func TestTenantWrites_RetryAfter(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	transport := &tenantWrites{RoundTripper: http.DefaultTransport, own: "credentials", timeout: time.Hour}
	for path, want := range map[string]string{"/api/v1/namespaces/shops/secrets": "", "/api/v1/namespaces/credentials/secrets": "60"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Header.Get("Retry-After"); got != want {
			t.Errorf("%s: Retry-After %q, want %q", path, got, want)
		}
	}
}
