package system

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// Each way a session can end is seen on every replica and reported once.
func TestSession_EndsSeenAndReportedOnce(t *testing.T) {
	s := newTenant(t)
	hooks := newReceiver(t, nil)
	s.Merchant("coffee", subscribe(hooks))
	_, key := s.ApiKey("till", "coffee")
	rail := s.RailToken()
	s.eventuallyEverywhere(key, http.StatusOK)
	secret := s.signingSecret("coffee")

	for name, test := range map[string]struct {
		end    func(id string)
		status string
		types  []string
	}{
		"settled": {
			end: func(id string) {
				for replica := range 2 { // a rail without an answer repeats the report, at any replica
					s.wantApplied(s.settle(replica, rail, id, report("card-1", "COMPLETED")), true)
				}
			},
			status: "COMPLETED", types: []string{"session.completed"},
		},
		"failed": {
			end:    func(id string) { s.wantApplied(s.settle(1, rail, id, report("card-1", "FAILED")), true) },
			status: "FAILED", types: []string{"session.failed"},
		},
		"cancelled": {
			end: func(id string) {
				for replica := range 2 {
					s.want(s.cancel(replica, key, id), http.StatusOK)
				}
			},
			status: "CANCELLED", types: []string{"session.cancelled"},
		},
		"a payment after the end": {
			end: func(id string) {
				s.want(s.cancel(0, key, id), http.StatusOK)
				for replica := range 2 {
					s.wantRefund(s.settle(replica, rail, id, report("card-1", "COMPLETED")))
				}
			},
			status: "CANCELLED", types: []string{"session.cancelled", "session.late_payment"},
		},
		"a payment of another amount": {
			end: func(id string) {
				wrong := `{"paymentRef":"card-1","outcome":"COMPLETED","amountCents":1}`
				for replica := range 2 {
					s.wantRefund(s.settle(replica, rail, id, wrong))
				}
			},
			status: "PENDING", types: []string{"session.payment_mismatch"},
		},
		"expired": {
			end: func(id string) { expire(t, id) }, status: "EXPIRED", types: []string{"session.expired"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := tenant{fixture.Tenant{T: t, Kube: s.Kube, Namespace: s.Namespace}}
			id := s.charge(0, key)
			test.end(id)
			s.Eventually("the merchant gets the events", func() bool { return len(hooks.Types(id)) >= len(test.types) })
			s.wantStatus(key, id, test.status)
			if diff := cmp.Diff(count(test.types), count(hooks.Types(id))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			for _, d := range hooks.About(id) {
				s.verify(secret, d)
				if !strings.Contains(d.Body, `"orderRef":"1001"`) {
					t.Errorf("%s does not echo orderRef: %s", d.ID, d.Body)
				}
			}
		})
	}
}

// Two ends race on two replicas: one of them happens, and both callers and the merchant get the same one.
func TestSettle_RacesCancel(t *testing.T) {
	t.Parallel()
	const races = 40
	s := newTenant(t)
	hooks := newReceiver(t, nil)
	s.Merchant("coffee", subscribe(hooks))
	_, key := s.ApiKey("till", "coffee")
	rail := s.RailToken()
	for replica := range 2 {
		s.eventuallyStatus(replica, key, http.StatusOK)
	}
	ends := map[string]string{} // of each session
	for i := range races {
		id := s.charge(0, key)
		var both sync.WaitGroup
		var cancelled, settled fixture.Answer
		both.Go(func() { cancelled = s.cancel(i%2, key, id) })
		both.Go(func() { settled = s.settle((i+1)%2, rail, id, report("card-"+strconv.Itoa(i), "COMPLETED")) })
		both.Wait()
		s.want(settled, http.StatusOK)
		if cancelled.Status == http.StatusOK {
			ends[id] = "CANCELLED"
			s.wantRefund(settled)
		} else {
			ends[id] = "COMPLETED"
			s.want(cancelled, http.StatusConflict)
			s.wantApplied(settled, true)
		}
		s.wantStatus(key, id, ends[id])
	}
	want := map[string][]string{
		"CANCELLED": {"session.cancelled", "session.late_payment"},
		"COMPLETED": {"session.completed"},
	}
	for id, end := range ends {
		s.Eventually("the merchant gets the events", func() bool { return len(hooks.Types(id)) >= len(want[end]) })
		if diff := cmp.Diff(count(want[end]), count(hooks.Types(id))); diff != "" {
			t.Errorf("events of a session that is %s (-want +got):\n%s", end, diff)
		}
	}
}

// Rails use the internal listener only, and each kind of caller has a listener of its own.
func TestSettle_RailsOnly(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	_, key := s.till()
	id, rail := s.charge(0, key), s.RailToken()
	stranger := s.Token("stranger")
	path := "/internal/v1/sessions/" + id + "/settlement"
	body := report("card-1", "COMPLETED")

	s.want(s.call(0, http.MethodPost, path, rail, body), http.StatusNotFound)
	s.want(s.settle(0, "", id, body), http.StatusUnauthorized)
	s.want(s.settle(0, key, id, body), http.StatusUnauthorized)
	s.want(s.settle(0, stranger, id, body), http.StatusForbidden)
	s.want(s.send(shared.replicas[0].Internal, http.MethodGet, sessions+"/"+id, key, ""), http.StatusNotFound)
	s.want(s.settle(0, rail, session.NewID("aaaaaaaaaaaa", false).String(), body), http.StatusNotFound)
	s.want(s.settle(0, rail, id, `{"paymentRef":"card-1"}`), http.StatusBadRequest)
	s.wantStatus(key, id, "PENDING")
}

func (s tenant) wantApplied(got fixture.Answer, applied bool) {
	s.T.Helper()
	s.want(got, http.StatusOK)
	if got.Body["applied"] != applied || got.Body["action"] != nil {
		s.T.Errorf("settlement answered %s", got.Raw)
	}
}

func (s tenant) wantRefund(got fixture.Answer) {
	s.T.Helper()
	s.want(got, http.StatusOK)
	if got.Body["applied"] != false || got.Body["action"] != "REFUND_REQUIRED" {
		s.T.Errorf("settlement answered %s, want REFUND_REQUIRED", got.Raw)
	}
}

func count(types []string) map[string]int {
	counts := map[string]int{}
	for _, t := range types {
		counts[t]++
	}
	return counts
}

// expire lets a session's time be over, which takes a minute at least without reaching into Redis.
func expire(t *testing.T, id string) {
	t.Helper()
	parsed, err := session.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	options, err := redis.ParseURL(shared.Redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	bucket := storetest.BucketTag(parsed.Bucket())
	past := time.Now().Add(-time.Second).UnixMilli()
	if err := client.HSet(t.Context(), bucket+"session:"+id, "x", past).Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.ZAdd(t.Context(), bucket+"expiry", redis.Z{Score: float64(past), Member: id}).Err(); err != nil {
		t.Fatal(err)
	}
}
