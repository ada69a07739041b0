// Package tracing makes the spans of the data plane: for a request, a script in Redis, and an attempt to deliver an event. Only
// this package makes spans, so that none contains a key, session id, address, path or URL. It is off without OTEL_* variables.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes spans. A nil Tracer makes none.
type Tracer struct{ tracer trace.Tracer }

// flushTimeout limits the export of the last spans.
const flushTimeout = 5 * time.Second

// Start returns the Tracer of a role, or nil unless OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or
// OTEL_TRACES_EXPORTER=otlp is set. Other OTEL_* variables configure exporter, sampler, batches and resource. A processor, if
// given, receives the spans instead. The error names the invalid variable. Call stop at the end.
func Start(ctx context.Context, role string, processor sdktrace.SpanProcessor, log *slog.Logger) (tracer *Tracer, stop func(), err error) {
	if processor == nil {
		on, err := enabled(os.Getenv)
		if err != nil || !on {
			return nil, func() {}, err
		}
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("create the span exporter: %w", err)
		}
		processor = sdktrace.NewBatchSpanProcessor(exporter)
		// The library has only this global handler for export errors. Its default prints them.
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("could not export spans", "error", err) }))
	}
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "merchant-operator-"+role)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("create the span resource: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor), sdktrace.WithResource(described))
	stop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("could not export the last spans", "error", err)
		}
	}
	return &Tracer{provider.Tracer("github.com/merchant-operator/merchant-operator")}, stop, nil
}

// enabled reads the variables of the OpenTelemetry specification. Unlike there, the default is off.
func enabled(getenv func(string) string) (bool, error) {
	if getenv("OTEL_SDK_DISABLED") == "true" {
		return false, nil
	}
	switch getenv("OTEL_TRACES_EXPORTER") {
	case "none":
		return false, nil
	case "otlp":
	case "":
		if getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
			return false, nil
		}
	default:
		return false, errors.New("OTEL_TRACES_EXPORTER must be otlp or none")
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch getenv(name) {
		case "":
			continue
		case "http/protobuf":
			return true, nil
		}
		return false, errors.New(name + " must be http/protobuf")
	}
	return true, nil
}

// Span is a span in progress. The zero Span does nothing.
type Span struct{ span trace.Span }

// StartRequest starts the span of a received request, and returns the request with it. For a trusted sender the span belongs to
// the trace of the header traceparent (W3C Trace Context); others could join any trace, or force sampling. tracestate is
// dropped, because it may contain anything.
func (t *Tracer) StartRequest(r *http.Request, trusted bool) (*http.Request, Span) {
	if t == nil {
		return r, Span{}
	}
	ctx := r.Context()
	if trusted {
		remote := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header)))
		if remote.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, remote.WithTraceState(trace.TraceState{}))
		}
	}
	ctx, span := t.tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer))
	return r.WithContext(ctx), Span{span}
}

// SetCaller says whose API key a request presented, without "mer_"; empty: unknown.
func (s Span) SetCaller(merchantID, keyID string) {
	if s.span == nil || keyID == "" {
		return
	}
	s.span.SetAttributes(
		attribute.String("merchant_operator.merchant.id", merchantID),
		attribute.String("merchant_operator.key.id", keyID))
}

// EndRequest ends the span of a request. The method is from a fixed list; the route is a pattern, empty if none matched. The id is
// that of the response header X-Request-Id.
func (s Span) EndRequest(method, route string, status int, id string) {
	if s.span == nil {
		return
	}
	s.span.SetName(method + " " + route)
	s.span.SetAttributes(
		attribute.String("http.request.method", method),
		attribute.String("http.route", route),
		attribute.Int("http.response.status_code", status),
		attribute.String("http.response.header.x-request-id", id))
	if status >= http.StatusInternalServerError {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// StartScript starts the span of a script in Redis, with its name and without its arguments. There is none outside of a request
// or an attempt, because the dispatcher polls hundreds of times a second.
func (t *Tracer) StartScript(ctx context.Context, name string) (context.Context, Span) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, "redis "+name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.system.name", "redis"),
		attribute.String("db.stored_procedure.name", name)))
	return ctx, Span{span}
}

// EndScript ends the span of a script. The cause of a failure is from a fixed list; empty: success.
func (s Span) EndScript(cause string) {
	if s.span == nil {
		return
	}
	if cause != "" {
		s.span.SetAttributes(attribute.String("error.type", cause))
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// StartAttempt starts the span of an attempt to deliver an event, after so many failed ones. The endpoint gets no traceparent: a
// merchant's server is not part of this system.
func (t *Tracer) StartAttempt(ctx context.Context, kind string, failed int) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, "webhook "+kind, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("merchant_operator.event.kind", kind),
		attribute.Int("http.request.resend_count", failed)))
	return ctx, Span{span}
}

// EndAttempt ends the span of an attempt, with its result from a fixed list, and the status of the response, 0 without one.
func (s Span) EndAttempt(result string, status int, delivered bool) {
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

// TraceID is the trace id of a request, for the log; empty: not traced.
func TraceID(ctx context.Context) string {
	if spanContext := trace.SpanContextFromContext(ctx); spanContext.HasTraceID() {
		return spanContext.TraceID().String()
	}
	return ""
}
