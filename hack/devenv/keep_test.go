package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// starts are the process ids of every start of a program that says its own first.
func starts(t *testing.T, log string) []int {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int
	for line := range strings.Lines(string(text)) {
		id, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func TestARoleThatIsKilledIsStartedAgain(t *testing.T) {
	failed := make(chan error, 1)
	p := &programs{logs: t.TempDir(), fail: func(err error) { failed <- err }}
	stop, err := p.keep("role", "/bin/sh", "-c", "echo $$; exec sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(p.logs, "role.log")
	waitUntil(t, "it runs", func() bool { return len(starts(t, log)) == 1 })
	if err := syscall.Kill(starts(t, log)[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "it runs again", func() bool { return len(starts(t, log)) == 2 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(starts(t, log)[1], 0); err == nil {
		t.Error("it outlived its stop")
	}
	select {
	case err := <-failed:
		t.Error(err)
	default:
	}
}

// What cannot run ends the environment, with what it said.
func TestARoleThatAlwaysEndsEndsTheEnvironment(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	p := &programs{logs: t.TempDir(), fail: fail}
	stop, err := p.keep("role", "/bin/sh", "-c", "echo broken; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); cause == nil || !strings.Contains(cause.Error(), "broken") || !strings.Contains(cause.Error(), "exit status 3") {
		t.Errorf("it says: %v", cause)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
