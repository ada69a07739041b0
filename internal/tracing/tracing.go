// Package tracing owns the spans of the data plane: one for a request, one for a script in Redis, one for an attempt to
// deliver an event. It decides what is in them, which is why nothing else makes spans: never a key, an id of a session, an
// address, a path or a URL. It is off unless the OTEL_* variables say where spans go, and then costs nothing.
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

// flushTimeout bounds the last spans' way out.
const flushTimeout = 5 * time.Second

// Start returns the Tracer of a role, nil unless the standard variables ask for spans: OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, or OTEL_TRACES_EXPORTER=otlp. The other OTEL_* variables of exporter, sampler, batch
// and resource are heeded. A processor takes the spans instead, if there is one. The error says which variable asks for
// what is not there. Call stop at the end.
func Start(ctx context.Context, role string, processor sdktrace.SpanProcessor, log *slog.Logger) (tracer *Tracer, stop func(), err error) {
	if processor == nil {
		wanted, err := wanted(os.Getenv)
		if err != nil || !wanted {
			return nil, func() {}, err
		}
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("make the exporter of spans: %w", err)
		}
		processor = sdktrace.NewBatchSpanProcessor(exporter)
		// The library has no other place for the failures of its exporter; without it they are printed.
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("could not export spans", "error", err) }))
	}
	described, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "merchant-operator-"+role)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("describe the origin of spans: %w", err)
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

// wanted reads the variables of the OpenTelemetry specification, but for one default: without any of them it is off.
func wanted(getenv func(string) string) (bool, error) {
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
		return false, errors.New("OTEL_TRACES_EXPORTER: want otlp or none")
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch getenv(name) {
		case "":
			continue
		case "http/protobuf":
			return true, nil
		}
		return false, errors.New(name + ": want http/protobuf, the one that is spoken here")
	}
	return true, nil
}
