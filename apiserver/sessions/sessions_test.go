package sessions

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/caller"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

type links struct{}

func (links) Header(id session.ID) string  { return "</pay/" + id.String() + `>; rel="payment"` }
func (links) Payload(id session.ID) string { return "pay://qr/" + id.String() }

// BenchmarkCreate is a whole charge except the network and the authentication.
func BenchmarkCreate(b *testing.B) {
	registry := prometheus.NewRegistry()
	sessions := storetest.Open(b, redistest.Start(b).URL(), func(o *redis.Options) { o.Registerer = registry })
	h := New(Options{Store: sessions, Links: links{}})
	from := caller.Caller{Principal: directory.Principal{KeyID: "abcdefgh2345", Digest: apikey.NewDigest("a key"), Accepted: true, Live: true, Merchant: &directory.Merchant{
		ID: "abcdefgh2345", DisplayName: "Acme", State: v1alpha1.MerchantActive,
		RateLimit: v1alpha1.RateLimit{RequestsPerSecond: 1_000_000, Burst: 1_000_000},
		Sessions:  v1alpha1.SessionSettings{LifetimeSeconds: 900},
	}}}
	options := web.Options{Log: slog.New(slog.DiscardHandler), Draining: func() bool { return false }, Answer: func(err error) web.Answer { return web.Answer{Message: err.Error()} }}
	handler := web.New(options, web.NewMetrics(registry), web.Routes{"/api/v1/sessions": {
		http.MethodPost: func(e *web.Event, w http.ResponseWriter, r *http.Request) error {
			return h.Create(e, w, r, from)
		},
	}})
	b.ReportAllocs()
	for b.Loop() {
		request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/api/v1/sessions", strings.NewReader(`{"amountCents": 1250, "orderRef": "1001"}`))
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != http.StatusCreated {
			b.Fatalf("status %d: %s", answer.Code, answer.Body)
		}
	}
}
