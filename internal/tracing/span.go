package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Span is under way. The zero Span is none.
type Span struct{ span trace.Span }

// Receive begins the span of a request that came in, and returns the request with it. When its sender is believed, the span
// belongs to the trace that the header traceparent names (W3C Trace Context); whoever is not could have every request of
// theirs recorded, and into anybody's trace. What tracestate holds is left out, for it may hold anything.
func (t *Tracer) Receive(r *http.Request, believed bool) (*http.Request, Span) {
	if t == nil {
		return r, Span{}
	}
	ctx := r.Context()
	if believed {
		told := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header)))
		if told.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, told.WithTraceState(trace.TraceState{}))
		}
	}
	ctx, span := t.tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), Span{span}
}

// Answered ends the span of a request. The method is one of a closed list, and the route a pattern, empty for what had none.
func (s Span) Answered(method, route string, status int) {
	if s.span == nil {
		return
	}
	s.span.SetName(method + " " + route)
	s.span.SetAttributes(
		attribute.String("http.request.method", method),
		attribute.String("http.route", route),
		attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// Script begins the span of a script in Redis: of its name, and not of what it is given. There is none outside of a request
// or an attempt: the dispatcher looks for work hundreds of times a second.
func (t *Tracer) Script(ctx context.Context, name string) (context.Context, Span) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, "redis "+name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.system.name", "redis"),
		attribute.String("db.stored_procedure.name", name)))
	return ctx, Span{span}
}

// Ran ends the span of a script. The cause of a failure is a word of a closed list; empty: it went well.
func (s Span) Ran(cause string) {
	if s.span == nil {
		return
	}
	if cause != "" {
		s.span.SetAttributes(attribute.String("error.type", cause))
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// Attempt begins the span of an attempt to deliver an event of a kind, after so many that failed. It is not told to the
// endpoint: a merchant's server is no part of this system.
func (t *Tracer) Attempt(ctx context.Context, kind string, failed int) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, "webhook "+kind, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("merchant_operator.event.kind", kind),
		attribute.Int("http.request.resend_count", failed)))
	return ctx, Span{span}
}

// Sent ends the span of an attempt: what came of it, a word of a closed list, and the status of the answer, 0 without one.
func (s Span) Sent(result string, status int, delivered bool) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(attribute.String("merchant_operator.attempt.result", result))
	if status != 0 {
		s.span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if !delivered {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// TraceID is by which an entry in the log is found that belongs to the request; empty: it is not traced.
func TraceID(ctx context.Context) string {
	if spanContext := trace.SpanContextFromContext(ctx); spanContext.HasTraceID() {
		return spanContext.TraceID().String()
	}
	return ""
}
