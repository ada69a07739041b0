package main

import (
	"slices"
	"testing"
)

// Many refunds of one merchant do not delay those of others, and the oldest of each merchant comes first.
func TestInTurn(t *testing.T) {
	var list []owed
	for _, ref := range []string{"a1", "a2", "a3", "b1", "a4", "b2", "c1"} {
		list = append(list, owed{PaymentRef: ref, MerchantID: ref[:1]})
	}
	var refs []string
	for _, o := range inTurn(list) {
		refs = append(refs, o.PaymentRef)
	}
	if want := []string{"a1", "b1", "c1", "a2", "b2", "a3", "a4"}; !slices.Equal(refs, want) {
		t.Errorf("paid in the order %v, want %v", refs, want)
	}
}
