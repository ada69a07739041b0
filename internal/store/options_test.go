package store_test

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/store"
)

func TestSessionsOutliveTheirIdempotencyKeys(t *testing.T) {
	if _, err := store.New(nil, store.Options{SessionRetention: 23 * time.Hour}); err == nil {
		t.Error("sessions that end before their keys: accepted")
	}
}
