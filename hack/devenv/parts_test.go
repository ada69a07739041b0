package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestClaimIsForOneAtATime(t *testing.T) {
	wanted := filepath.Join(t.TempDir(), ".dev")
	if release, err := claim(wanted); err != nil {
		t.Fatal(err)
	} else {
		defer release()
	}
	_, err := claim(wanted)
	if err == nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("a second claim: %v, want an error that names process %d", err, os.Getpid())
	}
}

func TestClaimCleansUpAfterAKilledRun(t *testing.T) {
	wanted := filepath.Join(t.TempDir(), ".dev")
	if err := os.MkdirAll(filepath.Join(wanted, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, stale := range []string{"lock", "env", "logs/old.log"} {
		if err := os.WriteFile(filepath.Join(wanted, stale), []byte("1234567890123"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	release, err := claim(wanted)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, stale := range []string{"env", "logs/old.log"} {
		if _, err := os.Stat(filepath.Join(wanted, stale)); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", stale, err)
		}
	}
	if lock, err := os.ReadFile(filepath.Join(wanted, "lock")); err != nil || string(lock) != strconv.Itoa(os.Getpid()) {
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
