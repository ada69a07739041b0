package main

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// TestRun is the contract that scripts rely on: .dev/env appears when everything works, and soon after a stop of
// whatever kind, it is gone and so is everything else.
func TestRun(t *testing.T) {
	root := buildRoot(t)
	server, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		env      []string
		redis    string
		stop     syscall.Signal
		wantExit int
	}{
		{name: "a Redis server, SIGTERM", redis: server, stop: syscall.SIGTERM, wantExit: 0},
		{
			name: "embedded Redis, SIGKILL", env: []string{"PATH=" + t.TempDir(), "REDIS_SERVER="},
			redis: "embedded", stop: syscall.SIGKILL, wantExit: -1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := start(t, root, test.env...)
			env := run.waitForEnv(t)
			chargeAndSettle(t, env)
			if said := run.said(t); !strings.Contains(said, test.redis) || !strings.Contains(said, "curl -s "+env["API_URL"]) {
				t.Errorf("the banner has no curl for %s, or does not say that Redis is %q:\n%s", env["API_URL"], test.redis, said)
			}

			second := start(t, root, test.env...)
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

// event is one that the receiver got.
type event struct {
	Type     string
	Verified bool
	Body     string
}

// chargeAndSettle creates a session on one replica, settles it as the sample's rail, reads it on the other, and
// waits until the sample's receiver is told.
func chargeAndSettle(t *testing.T, env map[string]string) {
	t.Helper()
	var session struct{ SessionID, Status string }
	request(t, http.MethodPost, env["API_URL"]+"/api/v1/sessions", env["API_KEY"], `{"amountCents": 1250}`, http.StatusCreated, &session)
	request(t, http.MethodPost, env["INTERNAL_URL"]+"/internal/v1/sessions/"+session.SessionID+"/settlement", env["RAIL_TOKEN"],
		`{"paymentRef": "card-1", "outcome": "COMPLETED", "amountCents": 1250}`, http.StatusOK, nil)
	request(t, http.MethodGet, env["API_URL_2"]+"/api/v1/sessions/"+session.SessionID, env["API_KEY"], "", http.StatusOK, &session)
	if session.Status != "COMPLETED" {
		t.Errorf("the session is %s", session.Status)
	}
	waitUntil(t, "the receiver is told", func() bool {
		var events []event
		request(t, http.MethodGet, strings.TrimSuffix(env["WEBHOOK_SINK_URL"], "/hooks")+"/events", "", "", http.StatusOK, &events)
		return slices.ContainsFunc(events, func(e event) bool {
			return e.Type == "session.completed" && e.Verified && strings.Contains(e.Body, session.SessionID)
		})
	})
}
