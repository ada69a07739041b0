//go:build faults

package faults

import (
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/merchant-operator/merchant-operator/test/logtest"
)

// spans takes the traces of all processes over OTLP.
type spans struct {
	*httptest.Server

	got logtest.Buffer // as they are on the wire, where text is text
}

func receiveSpans() *spans {
	s := &spans{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(&s.got, request.Body)
	}))
	return s
}

// variables have a process send one trace of twenty, and soon, for it may be killed.
func (s *spans) variables() []string {
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + s.URL, "OTEL_BSP_SCHEDULE_DELAY=200",
		"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.05",
	}
}
