//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/mailtest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// fullFaults fill Redis, or take a primary of a Redis Cluster away, by what one merchant does, and look at another one.
func fullFaults() []fault {
	return []fault{
		{"P13", "Redis is full while payments are reported", "none is applied without its receipt: all are answered 503, and have one when they are repeated", tryFullPayments},
		{"P6", "Redis is full, also with the events of an endpoint that is down", "events of others are delivered while it is full", tryFullBacklog},
		{"P2, P6", "a primary of a Redis Cluster is silent, and 40 keys of its merchant change", "a replica that starts is ready; a key at another primary is refused in time", trySilentPrimary},
	}
}

func tryFullPayments(t *testing.T) (int, string) {
	t.Helper()
	const payments = 20
	mails, err := mailtest.Start(mailtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mails.Close() })
	server := redistest.Start(t)
	s := &deployment{t: t, redis: server, toRedis: newWire(t, server.Addr()), keeper: newKeeper(t, server), flags: []string{"--receipts"}}
	s.url = "redis://" + s.toRedis.Listen + "/0"
	s.open(1, 0)
	s.addDispatcher(0, "--smtp-url", "smtp://"+mails.Address(), "--smtp-from", "receipts@pay.example")
	s.Tenant.Merchant("coffee")
	key, rail := s.apiKey("till", "coffee"), s.railToken()
	s.settlesEverywhere(rail)
	var ids []string
	for n := range payments {
		body := fmt.Sprintf(`{"amountCents": 1250, "customerEmail": "customer-%d@example.org"}`, n)
		ids = append(ids, s.mustCall(http.StatusCreated, s.replicas[0].public, http.MethodPost, sessions, key, body).Text("sessionId"))
	}
	report := func(status int) {
		for n, id := range ids {
			s.mustCall(status, s.replicas[0].internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", rail,
				fmt.Sprintf(`{"paymentRef": "card-%d", "outcome": "COMPLETED", "amountCents": 1250}`, n))
		}
	}
	s.must(s.keeper.ConfigSet(t.Context(), "maxmemory", "1").Err())
	report(http.StatusServiceUnavailable)
	s.must(s.keeper.ConfigSet(t.Context(), "maxmemory", "0").Err())
	report(http.StatusOK)
	eventuallySees(t, "all receipts are sent", func() (string, bool) {
		sent := len(mails.Messages())
		return fmt.Sprint(sent, " are"), sent >= payments
	})
	return 1, fmt.Sprintf("%d payments, %d receipts", payments, len(mails.Messages()))
}

func tryFullBacklog(t *testing.T) (int, string) {
	t.Helper()
	const events = 1000
	s := deploy(t, 1, 1)
	hooks := newReceiver(t)
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(down.Close)
	victim := s.Merchant("victim", func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: hooks.URL} })
	greedy := s.Merchant("greedy", func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: down.URL} })
	s.dispatchers[0].kill()
	services := storetest.New(t, s.url)
	s.events(services, greedy, events)
	ids := s.events(services, victim, events)
	s.must(s.keeper.ConfigSet(t.Context(), "maxmemory", "1").Err())
	s.dispatchers[0].restart(t)
	full := time.Now()
	for _, id := range ids {
		eventually(t, "the event of "+id+" is delivered", func() bool { return hooks.received(id) })
	}
	return 1, fmt.Sprintf("%d events of another merchant delivered in %s while Redis was full", events, time.Since(full).Round(time.Millisecond))
}

func trySilentPrimary(t *testing.T) (int, string) {
	t.Helper()
	const keys = 40
	servers := storetest.StartCluster(t)
	s := deployOn(t, "redis+cluster://"+servers[0].Addr(), 2, 0)
	client := storetest.New(t, s.url)
	serverOf := func(merchant *v1alpha1.Merchant) string {
		return client.Store.Server(t.Context(), session.NewID(published.ID(merchant.UID), false))
	}
	// Merchants until two of them are at two primaries, neither of which is the first: all know that one.
	var gone, victim *v1alpha1.Merchant
	for n := 0; victim == nil; n++ {
		merchant := s.Merchant(fmt.Sprint("shop-", n))
		_, _ = client.Admit(t.Context(), storetest.Merchant()) // finds the slots
		switch server := serverOf(merchant); {
		case server == "" || server == servers[0].Addr():
		case gone == nil:
			gone = merchant
		case server != serverOf(gone):
			victim = merchant
		}
	}
	for n := range keys {
		s.apiKey(fmt.Sprint("till-", n), gone.Name)
	}
	key := s.apiKey("victim", victim.Name)
	for _, server := range servers {
		if server.Addr() == serverOf(gone) {
			server.Pause()
		}
	}
	s.addReplica(len(s.replicas)) // it returns when that is ready
	s.accepts(s.replicas[2], key)

	s.replicas[1].toKube.FreezeWatches() // it learns of the key from its peers, through Redis
	for n := range keys {
		edit(s, s.Namespace, fmt.Sprint("till-", n), &v1alpha1.ApiKey{}, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
	}
	edit(s, s.Namespace, "victim", &v1alpha1.ApiKey{}, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
	disabled := time.Now()
	for _, r := range s.replicas {
		s.refusedBy(r, key, http.StatusUnauthorized)
	}
	took := time.Since(disabled)
	if took > disabledWithin {
		t.Errorf("a key was accepted for %s after it was disabled", took)
	}
	return 1, fmt.Sprintf("ready with 2 of 3 primaries; a key at another primary was refused by 3 replicas after %d ms", took.Milliseconds())
}
