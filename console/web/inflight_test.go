package web

import (
	"errors"
	"testing"
)

// There is a bound for all and for each person, and what has ended leaves nothing.
func TestInflight(t *testing.T) {
	errTooMany := errors.New("too many")
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
	if requests.all != 0 || len(requests.byPerson) != 0 {
		t.Errorf("left are %d, %v", requests.all, requests.byPerson)
	}
}
