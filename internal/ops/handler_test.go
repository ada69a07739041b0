package ops

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// A replica whose watch is older than any override may take a dead key for a live one.
func TestHandler_Ready(t *testing.T) {
	redis := storetest.Client(t, redistest.Start(t).URL())
	for desc, test := range map[string]struct {
		phase string
		age   time.Duration
		want  int
	}{
		"before the first list":            {Syncing, 0, http.StatusServiceUnavailable},
		"serving":                          {Serving, time.Minute, http.StatusOK},
		"cut off for days":                 {Serving, keystate.OverrideLifetime - time.Second, http.StatusOK},
		"cut off for as long as overrides": {Serving, keystate.OverrideLifetime, http.StatusServiceUnavailable},
		"draining":                         {Draining, 0, http.StatusServiceUnavailable},
	} {
		t.Run(desc, func(t *testing.T) {
			p := NewPhase()
			p.Set(test.phase)
			answer := httptest.NewRecorder()
			Health{Phase: p, Age: func() time.Duration { return test.age }, MaxAge: keystate.OverrideLifetime}.readyz(answer, &probe{redis: redis})
			if answer.Code != test.want {
				t.Errorf("status %d, want %d: %s", answer.Code, test.want, answer.Body)
			}
		})
	}
}
