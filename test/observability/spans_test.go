package observability

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// spansNamed are those of the name that have ended.
func spansNamed(name string) tracetest.SpanStubs {
	return slices.DeleteFunc(shared.spans.GetSpans(), func(span tracetest.SpanStub) bool { return span.Name != name })
}

func value(span tracetest.SpanStub, key string) attribute.Value {
	for _, pair := range span.Attributes {
		if string(pair.Key) == key {
			return pair.Value
		}
	}
	return attribute.Value{}
}

// A request and its script are one trace.
func TestSpans_Request(t *testing.T) {
	requests := spansNamed("POST /api/v1/sessions")
	if len(requests) != 1 {
		t.Fatalf("%d spans of the one charge", len(requests))
	}
	charge := requests[0]
	if status := value(charge, "http.response.status_code").AsInt64(); status != http.StatusCreated || charge.SpanKind != trace.SpanKindServer {
		t.Errorf("the charge: status %d, a span of kind %s", status, charge.SpanKind)
	}
	scripts := spansNamed("redis create")
	if len(scripts) != 1 || scripts[0].Parent.SpanID() != charge.SpanContext.SpanID() {
		t.Errorf("the charge's script is not a part of it: %+v", scripts)
	}
}

func TestSpans_Page(t *testing.T) {
	pages := spansNamed("GET /merchants/{namespace}/{name}")
	if len(pages) == 0 {
		t.Fatal("no span of a page of the console")
	}
	for _, page := range pages {
		if !slices.ContainsFunc(spansNamed("redis read_login"), func(script tracetest.SpanStub) bool {
			return script.Parent.SpanID() == page.SpanContext.SpanID()
		}) {
			t.Error("reading the login is not a part of the page")
		}
	}
}

func TestSpans_Delivery(t *testing.T) {
	var attempts tracetest.SpanStubs
	await.Until(t, fixture.Patience, "both attempts have ended", func() bool {
		attempts = append(spansNamed("webhook session.cancelled"), spansNamed("webhook key.rotated")...)
		return len(attempts) == 2 && len(spansNamed("redis end_event")) == 2
	})
	for _, attempt := range attempts {
		if result := value(attempt, "merchant_operator.attempt.result").AsString(); result != "delivered" {
			t.Errorf("%s: %s", attempt.Name, result)
		}
		if !slices.ContainsFunc(spansNamed("redis end_event"), func(record tracetest.SpanStub) bool {
			return record.Parent.SpanID() == attempt.SpanContext.SpanID()
		}) {
			t.Errorf("%s: its record is not a part of it", attempt.Name)
		}
	}
}

// Only rails are believed about traces: anybody can send a header to the public port.
func TestSpans_Parent(t *testing.T) {
	settlements := spansNamed("POST /internal/v1/sessions/{id}/settlement")
	if len(settlements) == 0 {
		t.Error("no span of a settlement")
	}
	for _, span := range settlements {
		if span.SpanContext.TraceID().String() != foreignTrace {
			t.Error("a rail's trace ends at the internal listener")
		}
	}
	for _, span := range shared.spans.GetSpans() {
		if strings.Contains(span.Name, "/api/v1/") && span.SpanContext.TraceID().String() == foreignTrace {
			t.Errorf("%s is in the trace of a stranger", span.Name)
		}
		if span.SpanContext.TraceState().Len() > 0 || span.Parent.TraceState().Len() > 0 {
			t.Errorf("%s holds what a caller wrote into tracestate", span.Name)
		}
	}
}

// The dispatcher looks for work all the time; a trace of each look would hide what is of interest.
func TestSpans_IdlePolling(t *testing.T) {
	for _, span := range shared.spans.GetSpans() {
		if strings.HasPrefix(span.Name, "redis ") && !span.Parent.IsValid() {
			t.Errorf("%s belongs to nothing", span.Name)
		}
	}
}

func TestSpans_WebhookHeaders(t *testing.T) {
	for _, attempt := range shared.receiver.Attempts() {
		for name := range attempt.Header {
			if regexp.MustCompile(`(?i)^(traceparent|tracestate|baggage|b3|x-b3-.*)$`).MatchString(name) {
				t.Errorf("a webhook has the header %s", name)
			}
		}
	}
}

// The names and attributes that may be there. A new one is added here, after a thought about what may be in it.
var spanAttributes = []string{
	"db.stored_procedure.name", "db.system.name", "error.type", "http.request.method", "http.request.resend_count",
	"http.response.header.x-request-id", "http.response.status_code", "http.route", "merchant_operator.attempt.result", "merchant_operator.event.kind",
	"merchant_operator.key.id", "merchant_operator.merchant.id",
}

func TestSpans_NoSecrets(t *testing.T) {
	spans := shared.spans.GetSpans()
	if len(spans) < 20 {
		t.Fatalf("only %d spans", len(spans))
	}
	identifying := regexp.MustCompile(`ps_(test)?[0-9a-f]{2}|mk_(live|test)_|mer_|whsec_|evt_|@|https?://|\?`)
	for _, span := range spans {
		text := fmt.Sprintf("%s %+v %+v %+v %+v", span.Name, span.Attributes, span.Events, span.Links, span.Status)
		for _, secret := range append(shared.secrets, "acme", "Acme", "penelope", "Penelope") {
			if strings.Contains(text, secret) {
				t.Errorf("%q is in the span %s", secret, text)
			}
		}
		if found := identifying.FindString(text); found != "" {
			t.Errorf("%q is in the span %s", found, text)
		}
		for _, pair := range span.Attributes {
			if !slices.Contains(spanAttributes, string(pair.Key)) {
				t.Errorf("%s has the attribute %s, which is not in the list", span.Name, pair.Key)
			}
		}
		if len(span.Events) > 0 || len(span.Links) > 0 {
			t.Errorf("%s has events or links", span.Name)
		}
	}
}
