package redis

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// Whoever may not run WAIT learns it at the start, and not from the first payment.
func TestAwait_NoRightToWait(t *testing.T) {
	server := redistest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2})
	defer func() { _ = admin.Close() }()
	for name, test := range map[string]struct {
		rule   string
		logged bool
	}{
		"with the right":    {"+wait", false},
		"without the right": {"-wait", true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", test.rule).Err(); err != nil {
				t.Fatal(err)
			}
			c, err := Open(Options{URL: "redis://app:secret@" + server.Addr(), Timeout: patience, Replicas: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			var log strings.Builder
			if err := c.Await(t.Context(), slog.New(slog.NewTextHandler(&log, nil))); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(log.String(), "Add +wait to its ACL"); got != test.logged {
				t.Errorf("logged: %t, want %t:\n%s", got, test.logged, log.String())
			}
		})
	}
}
