package main

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRun is the contract that scripts rely on: .dev/env appears when everything works, and soon after a stop of
// whatever kind, it is gone and so is everything else.
func TestRun(t *testing.T) {
	root := buildRoot(t)
	for _, test := range []struct {
		name, path, redis string
		stop              syscall.Signal
		wantExit          int
	}{
		{name: "redis-server, SIGTERM", path: os.Getenv("PATH"), redis: "redis-server", stop: syscall.SIGTERM, wantExit: 0},
		{name: "embedded Redis, SIGKILL", path: t.TempDir(), redis: "embedded", stop: syscall.SIGKILL, wantExit: -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := start(t, root, test.path)
			env := run.waitForEnv(t)
			chargeAndRead(t, env)
			if said := run.said(t); !strings.Contains(said, test.redis) || !strings.Contains(said, "curl -s "+env["API_URL"]) {
				t.Errorf("the banner has no curl for %s, or does not say that Redis is %q:\n%s", env["API_URL"], test.redis, said)
			}

			second := start(t, root, test.path)
			<-second.ended
			if said := second.said(t); second.exitCode() == 0 || !strings.Contains(said, "already") {
				t.Errorf("a second one ended with %d and said:\n%s", second.exitCode(), said)
			}

			listeners := listeners(t, env)
			if err := run.process.Process.Signal(test.stop); err != nil {
				t.Fatal(err)
			}
			<-run.ended
			if run.exitCode() != test.wantExit {
				t.Errorf("exit code %d, want %d; it said:\n%s", run.exitCode(), test.wantExit, run.said(t))
			}
			waitUntil(t, "everything has stopped", func() bool {
				_, err := os.Stat(filepath.Join(root, ".dev", "env"))
				return errors.Is(err, fs.ErrNotExist) && !anyListens(listeners)
			})
		})
	}
}

// chargeAndRead creates a session on one replica and reads it on the other.
func chargeAndRead(t *testing.T, env map[string]string) {
	t.Helper()
	var session struct{ SessionID string }
	request(t, http.MethodPost, env["API_URL"]+"/api/v1/sessions", env["API_KEY"], `{"amountCents": 1250}`, http.StatusCreated, &session)
	request(t, http.MethodGet, env["API_URL_2"]+"/api/v1/sessions/"+session.SessionID, env["API_KEY"], "", http.StatusOK, nil)
}
