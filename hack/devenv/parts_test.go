package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestClaimRemovesLeftovers(t *testing.T) {
	directory := filepath.Join(t.TempDir(), ".dev")
	leftover := filepath.Join(directory, "logs", "old.log")
	if err := errors.Join(os.MkdirAll(filepath.Dir(leftover), 0o700), os.WriteFile(leftover, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	release, err := claim(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := os.Stat(leftover); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", leftover, err)
	}
	if lock, err := os.ReadFile(filepath.Join(directory, "lock")); err != nil || string(lock) != strconv.Itoa(os.Getpid()) {
		t.Errorf("the lock holds %q (%v), want process %d", lock, err, os.Getpid())
	}
}

func TestQuoteSurvivesAShell(t *testing.T) {
	for _, value := range []string{
		"http://127.0.0.1:8080", "/home/jo/my projects/it's", `$HOME "x" \ y`, "a;b", "",
	} {
		output, err := exec.Command("sh", "-c", "VALUE="+quote(value)+`; printf %s "$VALUE"`).Output()
		if err != nil || string(output) != value {
			t.Errorf("quote(%q) = %s, which a shell reads as %q (%v)", value, quote(value), output, err)
		}
	}
	if plain := "redis://127.0.0.1:6379/0"; quote(plain) != plain {
		t.Errorf("quote(%q) = %s, want it unchanged: not every reader is a shell", plain, quote(plain))
	}
}

// startScript runs a shell script as a role. pids returns the lines that it has printed.
func startScript(t *testing.T, fail context.CancelCauseFunc, script string) (stop func() error, pids func() []string) {
	t.Helper()
	p := &programs{logs: t.TempDir(), fail: fail}
	stop, err := p.keep("role", "/bin/sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	return stop, func() []string {
		log, err := os.ReadFile(filepath.Join(p.logs, "role.log"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(log))
	}
}

func TestKilledRoleIsRestarted(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	stop, pids := startScript(t, fail, "echo $$; exec sleep 600")
	kill := func(n int, signal syscall.Signal) error {
		pid, err := strconv.Atoi(pids()[n])
		return errors.Join(err, syscall.Kill(pid, signal))
	}
	waitUntil(t, "it runs", func() bool { return len(pids()) == 1 })
	if err := kill(0, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "it runs again", func() bool { return len(pids()) == 2 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := kill(1, 0); err == nil {
		t.Error("it still runs after stop")
	}
	if ctx.Err() != nil {
		t.Error(context.Cause(ctx))
	}
}

func TestRoleThatCannotRunEndsTheEnvironment(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	stop, _ := startScript(t, fail, "echo broken; exit 3")
	<-ctx.Done()
	if cause := context.Cause(ctx).Error(); !strings.Contains(cause, "broken") || !strings.Contains(cause, "exit status 3") {
		t.Errorf("the error is %s", cause)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
