package tracing

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

func TestEnabled(t *testing.T) {
	for name, test := range map[string]struct {
		env   map[string]string
		want  bool
		fails bool
	}{
		"nothing is set":               {nil, false, false},
		"a place for all signals":      {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, true, false},
		"a place for traces":           {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, true, false},
		"the exporter, at its default": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, false},
		"a place, but no traces":       {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, false, false},
		"disabled altogether":          {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, false, false},
		"another exporter":             {map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, false, true},
		"the protocol that is spoken":  {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true, false},
		"another protocol":             {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, true},
		"the protocol of traces wins":  {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := enabled(func(name string) string { return test.env[name] })
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("%t, %v; want %t, an error: %t", got, err, test.want, test.fails)
			}
		})
	}
}

func TestStart_Disabled(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER"} {
		t.Setenv(name, "")
	}
	tracer, stop, err := Start(t.Context(), "apiserver", nil, slog.New(slog.DiscardHandler))
	if tracer != nil || err != nil {
		t.Fatalf("a tracer %v, %v", tracer, err)
	}
	stop()
	if allocations := testing.AllocsPerRun(100, func() {
		ctx, script := tracer.StartScript(t.Context(), "create")
		script.EndScript("")
		_, attempt := tracer.StartAttempt(ctx, "session.completed", 0)
		attempt.EndAttempt("delivered", 200, true)
	}); allocations != 0 {
		t.Errorf("%v allocations without a tracer", allocations)
	}
}

// The variables of the OpenTelemetry specification are all there is to set.
func TestStart_Exports(t *testing.T) {
	var mu sync.Mutex
	var path, body string
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		path, body = r.URL.Path, string(text)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=staging")
	tracer, stop, err := Start(t.Context(), "apiserver", nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	request, span := tracer.StartRequest(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/somewhere", nil), false)
	_, script := tracer.StartScript(request.Context(), "create")
	script.EndScript("timeout")
	span.SetCaller("acme0815", "till4711")
	span.EndRequest(http.MethodPost, "/api/v1/sessions", http.StatusServiceUnavailable, "request-0815")
	stop()

	mu.Lock()
	defer mu.Unlock()
	if path != "/v1/traces" {
		t.Fatalf("spans were sent to %q", path)
	}
	for _, words := range []string{"merchant-operator-apiserver", "staging", "POST /api/v1/sessions", "redis create", "timeout", "request-0815", "acme0815", "till4711"} {
		if !strings.Contains(body, words) {
			t.Errorf("what was exported does not hold %q", words)
		}
	}
	if strings.Contains(body, "somewhere") {
		t.Error("what was exported holds the path of the request")
	}
}
