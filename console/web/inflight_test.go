package web

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errTooMany = errors.New("too many")

// There is a bound for all and for each person, and what has ended leaves nothing.
func TestInflight(t *testing.T) {
	requests := NewInflight(3, 2, errTooMany)
	var ends []func()
	for i, test := range []struct {
		person string
		want   error
	}{{"alice", nil}, {"alice", nil}, {"alice", errTooMany}, {"bob", nil}, {"carol", errTooMany}} {
		end, err := requests.Begin(test.person)
		if !errors.Is(err, test.want) {
			t.Errorf("request %d, of %s: %v, want %v", i, test.person, err, test.want)
		}
		if err == nil {
			ends = append(ends, end)
		}
	}
	for _, end := range ends {
		end()
	}
	wantNone(t, requests, 3)
}

// A request that waits begins when another one ends, or fails when its time is over.
func TestInflight_Await(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := NewInflight(1, 1, errTooMany)
		end, err := requests.Begin("alice")
		if err != nil {
			t.Fatal(err)
		}
		for _, person := range []string{"alice", "bob"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := requests.Await(ctx, person); !errors.Is(err, errTooMany) {
				t.Errorf("%s is admitted as a second one (%v)", person, err)
			}
			cancel()
		}
		time.AfterFunc(time.Second, end)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		end, err = requests.Await(ctx, "bob")
		if err != nil {
			t.Fatalf("%v, although the first request has ended", err)
		}
		end()
		synctest.Wait() // the end of the first request frees the place before it has finished
		wantNone(t, requests, 1)
	})
}

// A person with many requests that wait is in nobody's way: the others need not wait for them.
func TestInflight_ManyOfOnePerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := NewInflight(3, 2, errTooMany)
		for range 100 {
			go func() {
				if end, err := requests.Await(t.Context(), "mallory"); err == nil {
					<-time.After(time.Minute)
					end()
				}
			}()
		}
		synctest.Wait()
		end, err := requests.Begin("alice")
		if err != nil {
			t.Fatalf("alice: %v", err)
		}
		end()
		<-time.After(time.Hour)
		synctest.Wait()
		wantNone(t, requests, 3)
	})
}

// wantNone fails the test unless no request is in progress, and as many as the bound may begin.
func wantNone(t *testing.T, requests *Inflight, most int64) {
	t.Helper()
	if len(requests.byPerson) != 0 || !requests.all.TryAcquire(most) {
		t.Errorf("requests of %d people are left", len(requests.byPerson))
	}
}
