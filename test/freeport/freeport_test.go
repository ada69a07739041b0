package freeport

import "testing"

func TestChoose_NeverTwice(t *testing.T) {
	given := map[int]bool{}
	for range 1000 {
		port, err := Choose()
		if err != nil {
			t.Fatal(err)
		}
		if given[port] || port < lowest || port >= lowest+count {
			t.Fatalf("port %d, after %d others", port, len(given))
		}
		given[port] = true
	}
}
