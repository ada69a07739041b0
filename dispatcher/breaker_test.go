package dispatcher

import (
	"testing"
	"time"
)

func TestABreakerOpensAfterFailuresInARow(t *testing.T) {
	var b breaker
	for i := range breakerThreshold {
		if b.remaining(noon) != 0 {
			t.Fatalf("open after %d failures", i)
		}
		if open := b.failed(noon); open != (i == breakerThreshold-1) {
			t.Fatalf("after %d failures it says that it is open: %t", i+1, open)
		}
	}
	if got := b.remaining(noon); got != minOpen {
		t.Errorf("open for %s, want %s", got, minOpen)
	}
	if got := b.remaining(noon.Add(minOpen)); got != 0 {
		t.Errorf("open for another %s", got)
	}
	if !b.failing() {
		t.Error("trusted before it was tried")
	}
	b.succeeded()
	if b.failing() || b.remaining(noon) != 0 {
		t.Error("not closed by a success")
	}
	if b.failed(noon) {
		t.Error("failures before a success count")
	}
}

func TestABreakerStaysOpenLongerEachTimeUpToALimit(t *testing.T) {
	var b breaker
	var got []time.Duration
	for range breakerThreshold + 60 {
		if b.failed(noon) {
			got = append(got, b.remaining(noon))
		}
	}
	for i, want := range []int{5, 10, 20, 40, 60, 60, 60} {
		if got[i] != time.Duration(want)*time.Second {
			t.Errorf("break %d took %s, want %d s", i, got[i], want)
		}
	}
	if last := got[len(got)-1]; last != maxOpen {
		t.Errorf("the last break took %s", last)
	}
}
