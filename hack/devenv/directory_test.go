package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestClaimIsForOneAtATime(t *testing.T) {
	wanted := filepath.Join(t.TempDir(), ".dev")
	if _, release, err := claim(wanted); err != nil {
		t.Fatal(err)
	} else {
		defer release()
	}
	_, _, err := claim(wanted)
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
	_, release, err := claim(wanted)
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
