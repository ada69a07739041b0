//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/mailtest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

func receiptFaults() []fault {
	const promised = "each paid session with an address has its receipt, all copies of it have one Message-ID; no other address gets a mail"
	return []fault{
		{"P13", "kill -9 of a dispatcher and of Redis while receipts are sent", promised, tryReceipts},
	}
}

// tryReceipts kills them while the mail server holds mails that it has read and not accepted yet. It accepts them when nobody reads its answer.
func tryReceipts(t *testing.T) (tried int, seen string) {
	t.Helper()
	arrived, accept := make(chan struct{}, 1000), make(chan struct{})
	mails, err := mailtest.Start(mailtest.Options{Content: func(mailtest.Message) error {
		arrived <- struct{}{}
		<-accept
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mails.Close() })
	server := redistest.Start(t, durable...)
	s := &deployment{t: t, redis: server, toRedis: newWire(t, server.Addr()), keeper: newKeeper(t, server), flags: []string{"--receipts"}}
	s.url = "redis://" + s.toRedis.Listen + "/0"
	s.open(1, 0)
	for n := range 2 {
		s.addDispatcher(n, "--smtp-url", "smtp://"+mails.Address(), "--smtp-from", "receipts@pay.example")
	}
	s.Tenant.Merchant("coffee")
	key, rail := s.apiKey("till", "coffee"), s.railToken()
	s.settlesEverywhere(rail)

	charge := func(n int, path, bearer, body string) {
		base := s.replicas[0]
		created := s.mustCall(http.StatusCreated, base.public, http.MethodPost, fixture.Sessions, key, fmt.Sprintf(`{"amountCents": 1250, "orderRef": "order-%d", "customerEmail": "customer-%d@example.org"}`, n, n))
		id := created.Text("sessionId")
		if path == "cancel" {
			s.mustCall(http.StatusOK, base.public, http.MethodPost, fixture.Sessions+"/"+id+"/"+path, bearer, body)
		} else {
			s.mustCall(http.StatusOK, base.internal, http.MethodPost, "/internal/v1/sessions/"+id+"/"+path, bearer, body)
		}
	}
	const paid, unpaid, held = 40, 10, 16
	receipts := map[string]map[string]bool{} // Message-IDs by the order
	for n := range paid {
		charge(n, "settlement", rail, fmt.Sprintf(`{"paymentRef": "card-%d", "outcome": "COMPLETED", "amountCents": 1250}`, n))
		receipts[fmt.Sprintf("order-%d", n)] = map[string]bool{}
	}
	for n := range unpaid {
		charge(paid+n, "cancel", key, "")
	}
	for range held { // as many as two dispatchers send at a time
		select {
		case <-arrived:
		case <-time.After(fixture.Patience):
			close(accept)
			t.Fatal("the mail server gets no mail")
		}
	}
	s.dispatchers[0].kill()
	s.redis.Kill()
	close(accept)
	s.redis.Start()
	s.dispatchers[0].restart(t)

	// A killed dispatcher's receipts are due again after the minute of their leases.
	await.Until(t, fixture.Patience+2*time.Minute, "all receipts are sent", func() bool {
		waiting, err := s.keeper.Keys(t.Context(), "*:receipts").Result()
		return err == nil && len(waiting) == 0
	})
	for _, message := range mails.Messages() {
		_, rest, _ := strings.Cut(message.Text, "Order:     ")
		order, _, _ := strings.Cut(rest, "\n")
		ids := receipts[order]
		if ids == nil {
			t.Errorf("a mail to %s is of a session that is not paid", message.To)
			continue
		}
		ids[message.ID] = true
	}
	for order, ids := range receipts {
		if len(ids) != 1 {
			t.Errorf("the receipt of %s has %d Message-IDs", order, len(ids))
		}
	}
	return 1, fmt.Sprintf("%d payments, %d cancelled: %d receipts, %d of them more than once with the same Message-ID", paid, unpaid, len(receipts), len(mails.Messages())-paid)
}
