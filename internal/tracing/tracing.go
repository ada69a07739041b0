// Package tracing makes the spans of the data plane: for a request, a script in Redis, and an attempt to deliver an event. Only
// this package makes spans, so that none contains a key, session id, address, path or URL. It is off without OTEL_* variables.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
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
		wanted, err := enabled(os.Getenv)
		if err != nil || !wanted {
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
