package deadletters_test

import (
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// fixture is a Redis of its own.
type fixture struct {
	*storetest.Services

	url string
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	server := redistest.Start(t)
	return fixture{storetest.New(t, server.URL()), server.URL()}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lease leases the one event of the bucket that is due.
func (f fixture) lease(t *testing.T, bucket session.Bucket) outbox.Lease {
	t.Helper()
	leased, err := f.Lease(t.Context(), bucket, outbox.LeaseRequest{For: time.Hour, Limit: 10})
	if err != nil || len(leased.Leases) != 1 {
		t.Fatalf("leased %d events: %v", len(leased.Leases), err)
	}
	return leased.Leases[0]
}

// event cancels a new session of the merchant, and leases the event of it.
func (f fixture) event(t *testing.T, asks admission.Request) outbox.Lease {
	t.Helper()
	created := storetest.MustCreate(t, f.Services, asks, storetest.NewSession()).Session
	_, _, err := f.Cancel(t.Context(), asks, created.ID)
	must(t, err)
	return f.lease(t, session.MerchantBucket(asks.MerchantID))
}

// deadLetter makes a new event of the merchant a dead letter, and returns its id.
func (f fixture) deadLetter(t *testing.T, asks admission.Request) string {
	t.Helper()
	lease := f.event(t, asks)
	must(t, f.DeadLetter(t.Context(), lease, outbox.Details{Reason: "status_5xx", Answer: "503", Merchant: "shops/" + asks.MerchantID}))
	return lease.Event.ID
}
