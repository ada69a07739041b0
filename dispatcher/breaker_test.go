package dispatcher

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestABreakerOpensAfterFailuresInARow(t *testing.T) {
	var b breaker
	for i := range breakAfter {
		if b.wait(noon) != 0 {
			t.Fatalf("open after %d failures", i)
		}
		if open := b.failed(noon); open != (i == breakAfter-1) {
			t.Fatalf("after %d failures it says that it is open: %t", i+1, open)
		}
	}
	if got := b.wait(noon); got != firstBreak {
		t.Errorf("open for %s, want %s", got, firstBreak)
	}
	if got := b.wait(noon.Add(firstBreak)); got != 0 {
		t.Errorf("open for another %s", got)
	}
	if !b.suspicious() {
		t.Error("trusted before it was tried")
	}
	b.succeeded()
	if b.suspicious() || b.wait(noon) != 0 {
		t.Error("not closed by a success")
	}
	if b.failed(noon) {
		t.Error("failures before a success count")
	}
}

func TestABreakerStaysOpenLongerEachTimeUpToALimit(t *testing.T) {
	var b breaker
	var got []time.Duration
	for range breakAfter + 60 {
		if b.failed(noon) {
			got = append(got, b.wait(noon))
		}
	}
	for i, want := range []int{5, 10, 20, 40, 60, 60, 60} {
		if got[i] != time.Duration(want)*time.Second {
			t.Errorf("break %d took %s, want %d s", i, got[i], want)
		}
	}
	if last := got[len(got)-1]; last != longestBreak {
		t.Errorf("the last break took %s", last)
	}
}
