package outbox_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// shared is the redis-server of every test that does not harm its server. Tests keep apart by using
// merchants of their own.
var shared *redistest.Server

func TestMain(m *testing.M) { redistest.Main(m, func(s *redistest.Server) { shared = s }) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sameSession compares sessions.
var sameSession = cmp.AllowUnexported(session.ID{})

// with returns a changed copy.
func with[T any](value T, change func(*T)) T {
	change(&value)
	return value
}
