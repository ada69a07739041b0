package jitter_test

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/jitter"
)

func TestFraction_Spread(t *testing.T) {
	var low, high bool
	for range 1000 {
		got := jitter.Fraction()
		if got < 0 || got >= 1 {
			t.Fatalf("got %v", got)
		}
		low, high = low || got < 0.25, high || got > 0.75
	}
	if !low || !high {
		t.Error("a thousand numbers are all in one half")
	}
}
