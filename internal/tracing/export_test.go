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

// The variables of the OpenTelemetry specification are all there is to set.
func TestSpansGoWhereTheVariablesSay(t *testing.T) {
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
	span.EndRequest(http.MethodPost, "/api/v1/sessions", http.StatusServiceUnavailable)
	stop()

	mu.Lock()
	defer mu.Unlock()
	if path != "/v1/traces" {
		t.Fatalf("spans were sent to %q", path)
	}
	for _, words := range []string{"merchant-operator-apiserver", "staging", "POST /api/v1/sessions", "redis create", "timeout"} {
		if !strings.Contains(body, words) {
			t.Errorf("what was exported does not hold %q", words)
		}
	}
	if strings.Contains(body, "somewhere") {
		t.Error("what was exported holds the path of the request")
	}
}
