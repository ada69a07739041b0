package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

func TestRun_UntilStopped(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("whsec_dGhpcnR5LXR3byBieXRlcyBvZiB0aGUgbmV3IG9uZSE=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop, end := context.WithCancel(t.Context())
	defer end()
	var printed logtest.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- run(stop, []string{"--address", "127.0.0.1:0", "--secret-file", secret, "--secret-file", secret}, &printed)
	}()
	address := regexp.MustCompile(`http://127\.0\.0\.1:[1-9][0-9]*/`)
	await.Until(t, 20*time.Second, "it says where it listens", func() bool { return address.MatchString(printed.String()) })
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRun_InvalidFlags(t *testing.T) {
	directory := t.TempDir()
	empty := filepath.Join(directory, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WEBHOOK_SECRET", "")
	for name, args := range map[string][]string{
		"no secret":       {},
		"a missing file":  {"--secret-file", filepath.Join(directory, "missing")},
		"an empty file":   {"--secret-file", empty},
		"a wrong address": {"--accept-unverified", "--address", "nowhere"},
		"a wrong status":  {"--accept-unverified", "--status", "99"},
		"an unknown flag": {"--accept-everything"},
		"an argument":     {"--accept-unverified", "secret"},
	} {
		if err := run(t.Context(), args, t.Output()); err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("WEBHOOK_SECRET", "not a secret")
	if err := run(t.Context(), nil, t.Output()); err == nil || strings.Contains(err.Error(), "not a secret") {
		t.Errorf("a bad secret: %v, want an error that does not quote it", err)
	}
}
