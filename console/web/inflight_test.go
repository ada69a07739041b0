package web

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var errTooMany = errors.New("too many")

// There is a bound for each person, a share for each tenant and a bound for all, and what has ended leaves nothing.
func TestInflight(t *testing.T) {
	requests := NewInflight(6, 2, errTooMany)
	var ends []func()
	for i, test := range []struct {
		person, tenant string
		want           error
	}{
		{"alice", "acme", nil},
		{"alice", "acme", nil},
		{"alice", "acme", errTooMany}, // of one person
		{"bob", "acme", nil},
		{"bob", "acme", errTooMany}, // half of all
		{"carol", "globex", nil},
		{"carol", "globex", nil},
		{"dora", "globex", errTooMany}, // one is left, and 2 are theirs
		{"dora", "initech", nil},
		{"frank", "hooli", errTooMany}, // of all
	} {
		end, err := requests.Begin(test.person, test.tenant)
		if !errors.Is(err, test.want) {
			t.Errorf("request %d, of %s at %s: %v, want %v", i, test.person, test.tenant, err, test.want)
		}
		if err == nil {
			ends = append(ends, end)
		}
	}
	for _, end := range ends {
		end()
	}
	wantNone(t, requests)
}

// A request that waits begins when another one ends, or fails when its time is over.
func TestInflight_Await(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := NewInflight(1, 1, errTooMany)
		end, err := requests.Begin("alice", "acme")
		if err != nil {
			t.Fatal(err)
		}
		for _, person := range []string{"alice", "bob"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := requests.Await(ctx, person, "acme"); !errors.Is(err, errTooMany) {
				t.Errorf("%s is admitted as a second one (%v)", person, err)
			}
			cancel()
		}
		time.AfterFunc(time.Second, end)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		end, err = requests.Await(ctx, "bob", "acme")
		if err != nil {
			t.Fatalf("%v, although the first request has ended", err)
		}
		end()
		synctest.Wait() // the end of the first request frees the place before it has finished
		wantNone(t, requests)
	})
}

// A person with many requests that wait is in nobody's way: the others need not wait for them.
func TestInflight_ManyOfOnePerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := NewInflight(6, 2, errTooMany)
		for range 100 {
			go func() {
				if end, err := requests.Await(t.Context(), "mallory", "acme"); err == nil {
					<-time.After(time.Minute)
					end()
				}
			}()
		}
		synctest.Wait()
		end, err := requests.Begin("alice", "acme")
		if err != nil {
			t.Fatalf("alice: %v", err)
		}
		end()
		<-time.After(time.Hour)
		synctest.Wait()
		wantNone(t, requests)
	})
}

// A tenant whose many people have requests that wait is in nobody's way, and gives places back to tenants that come later.
func TestInflight_ManyPeopleOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := NewInflight(6, 2, errTooMany)
		var served [2]atomic.Int64
		for n := range 60 {
			for tenant, name := range []string{"acme", "globex"}[:1+n%2] {
				go func() {
					<-time.After(time.Duration(tenant) * time.Second) // globex comes later
					end, err := requests.Await(t.Context(), name+strconv.Itoa(n), name)
					if err != nil {
						t.Error(err)
						return
					}
					served[tenant].Add(1)
					<-time.After(time.Minute)
					end()
				}()
			}
		}
		<-time.After(time.Minute - time.Second)
		synctest.Wait()
		if acme, globex := served[0].Load(), served[1].Load(); acme != 3 || globex != 2 {
			t.Errorf("%d and %d requests were admitted at first, want 3 and 2", acme, globex)
		}
		end, err := requests.Begin("alice", "initech")
		if err != nil {
			t.Fatalf("alice: %v", err)
		}
		end()
		<-time.After(time.Hour)
		synctest.Wait()
		if acme, globex := served[0].Load(), served[1].Load(); acme != 60 || globex != 30 {
			t.Errorf("%d and %d requests were admitted, want 60 and 30", acme, globex)
		}
		wantNone(t, requests)
	})
}

// A request about several tenants has a place of any of them, also one for which it has waited.
func TestInflight_SeveralTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := NewInflight(4, 4, errTooMany)
		begin := func(tenants ...string) func() {
			end, err := requests.Await(t.Context(), "alice", tenants...)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		acme := []func(){begin("acme"), begin("acme")} // all that acme may have
		ends := []func(){begin("acme", "globex")}
		waits := make(chan func())
		go func() { waits <- begin("acme", "globex") }()
		synctest.Wait()
		select {
		case <-waits:
			t.Error("globex has half of what is left, and one more")
		default:
		}
		acme[0]()
		ends = append(ends, <-waits)
		if got := requests.byTenant; got["acme"] != 2 || got["globex"] != 1 {
			t.Errorf("places: %v", got)
		}
		for _, end := range append(ends, acme[1]) {
			end()
		}
		wantNone(t, requests)
	})
}

// wantNone fails the test unless no request is in progress or waits.
func wantNone(t *testing.T, requests *Inflight) {
	t.Helper()
	if len(requests.byPerson) != 0 || len(requests.byTenant) != 0 || requests.open != 0 || len(requests.waiting) != 0 {
		t.Errorf("requests of %d people are left, %d are open, %d wait", len(requests.byPerson), requests.open, len(requests.waiting))
	}
}
