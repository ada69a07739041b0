package session_test

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

func TestStatus_Final(t *testing.T) {
	for status, want := range map[session.Status]bool{
		session.Pending: false, session.Completed: true, session.Failed: true, session.Expired: true, session.Cancelled: true, "": false, "completed": false,
	} {
		if got := status.Final(); got != want {
			t.Errorf("%q is final: %t", status, got)
		}
	}
}
