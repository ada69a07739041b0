package guesses

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/ratelimit"
)

var guesser, other = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")

// numbered is one of many addresses.
func numbered(n int) netip.Addr {
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], uint32(n))
	return netip.AddrFrom4(address)
}

type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newLimiter() (*Limiter, *clock) {
	c := &clock{time.Unix(1_800_000_000, 0)}
	return New(ratelimit.Policy{RequestsPerSecond: 10, Burst: 3}, c.now), c
}

func TestGuessesAreBounded(t *testing.T) {
	l, c := newLimiter()
	for guess := range 3 {
		if wait := l.Wait(guesser); wait != 0 {
			t.Fatalf("guess %d must wait %s", guess, wait)
		}
		l.Wrong(guesser)
	}
	if wait := l.Wait(guesser); wait != 100*time.Millisecond {
		t.Errorf("a fourth guess must wait %s, want what one costs", wait)
	}
	if wait := l.Wait(other); wait != 0 {
		t.Errorf("another address must wait %s", wait)
	}
	c.at = c.at.Add(100 * time.Millisecond)
	if wait := l.Wait(guesser); wait != 0 {
		t.Errorf("after that it must wait %s more", wait)
	}
}

func TestWhoNeverGuessesIsNeverCounted(t *testing.T) {
	l, _ := newLimiter()
	for range 1000 {
		if l.Wait(guesser) != 0 {
			t.Fatal("asking alone is counted")
		}
	}
	if len(l.young) != 0 {
		t.Errorf("%d subscribers are remembered", len(l.young))
	}
}

// Requests that were under way together are all counted, and must not shut an address out for longer than a burst takes.
func TestNobodyOwesMoreThanABurst(t *testing.T) {
	l, c := newLimiter()
	for range 1000 {
		l.Wrong(guesser)
	}
	c.at = c.at.Add(300 * time.Millisecond)
	for guess := range 3 {
		if wait := l.Wait(guesser); wait != 0 {
			t.Fatalf("guess %d must wait %s", guess, wait)
		}
		l.Wrong(guesser)
	}
}

func TestTheMemoryIsBounded(t *testing.T) {
	l, _ := newLimiter()
	for n := range 5 * maxSubscribers {
		l.Wrong(numbered(n))
	}
	if held := len(l.young) + len(l.old); held > 2*maxSubscribers {
		t.Errorf("%d subscribers are remembered, want at most %d", held, 2*maxSubscribers)
	}
	for range 3 {
		l.Wrong(numbered(5*maxSubscribers - 1))
	}
	for n := range maxSubscribers / 2 {
		l.Wrong(numbered(10*maxSubscribers + n))
	}
	if l.Wait(numbered(5*maxSubscribers-1)) == 0 {
		t.Error("a guesser was forgotten before as many others came")
	}
}

func TestNoLimiterLimitsNobody(t *testing.T) {
	var l *Limiter
	l.Wrong(guesser)
	if l.Wait(guesser) != 0 {
		t.Error("nobody's limiter lets somebody wait")
	}
}

// Those who share a group with somebody who must wait are told apart from him, and so are many at once.
func TestNobodyWaitsForAnother(t *testing.T) {
	l, _ := newLimiter()
	var asking sync.WaitGroup
	asking.Go(func() {
		for range 1000 {
			l.Wrong(guesser)
		}
	})
	const perGroup = 20
	for half := range 2 {
		asking.Go(func() {
			for n := range perGroup * groups / 2 {
				if wait := l.Wait(numbered(half*perGroup*groups/2 + n)); wait != 0 {
					t.Errorf("address %d must wait %s", n, wait)
					return
				}
			}
		})
	}
	asking.Wait()
	if l.Wait(guesser) == 0 {
		t.Error("the guesser need not wait")
	}
}
