package rail

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// noKeyHandler needs no Redis.
type noKeyHandler struct{ directory.KeyHandler }

func (noKeyHandler) KeyUnverified(published.KeyRecord) {}

// A report counts even if the rail disconnects before the response.
func TestSettle_DisconnectedRail(t *testing.T) {
	sessions := storetest.Open(t, redistest.Start(t).URL())
	merchant := admission.Request{MerchantID: "abcdefgh2345", KeyID: "abcdefgh2345", Live: true, Limit: ratelimit.Policy{RequestsPerSecond: 10, Burst: 10}}
	sess := store.NewSession{Charge: session.Charge{AmountCents: 1}, MerchantName: "Acme", Lifetime: time.Minute}
	_, created, err := sessions.CreateSession(t.Context(), merchant, sess)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	index := directory.New(directory.Options{Log: log, Registerer: prometheus.NewRegistry(), KeyHandler: noKeyHandler{}, Now: time.Now})
	h := New(Options{Store: sessions, Directory: index, Log: log, Registerer: prometheus.NewRegistry()})

	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1}`))
	request.SetPathValue("id", created.Session.ID.String())
	if err := h.Settle(&web.Event{}, httptest.NewRecorder(), request, ""); err != nil {
		t.Errorf("settle: %v", err)
	}
	_, settled, err := sessions.Session(t.Context(), merchant, created.Session.ID)
	if err != nil || settled.Status != session.Completed {
		t.Errorf("the session is %s, %v", settled.Status, err)
	}
}
