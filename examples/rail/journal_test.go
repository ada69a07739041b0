//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func openTestJournal(t *testing.T, path string) *journal {
	t.Helper()
	j, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.file.Close() })
	return j
}

func newTestPayment(session, step string) payment {
	p := payment{Ref: "bank-" + session, Step: step}
	p.Session.ID = session
	return p
}

const fullDisk = "JOURNAL_ON_A_FULL_DISK"

// writeToFullDisk takes a step, and then one of which the disk takes only the first bytes.
func writeToFullDisk(t *testing.T, path string) {
	t.Helper()
	j := openTestJournal(t, path)
	if err := j.write(newTestPayment("one", stepMoved)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	limit := uint64(len(whole)) + 20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	_ = j.write(newTestPayment("two", stepMoved))
	t.Fatal("the bank goes on after a step that is not on the disk")
}

// A bank whose disk does not take a step ends before anything follows from it. The next start has the steps before.
func TestJournal_DiskFull(t *testing.T) {
	if path := os.Getenv(fullDisk); path != "" {
		writeToFullDisk(t, path)
	}
	path := filepath.Join(t.TempDir(), "payments.jsonl")
	bank := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestJournal_DiskFull$")
	bank.Env = append(os.Environ(), fullDisk+"="+path)
	output, err := bank.CombinedOutput()
	if !errors.As(err, new(*exec.ExitError)) || !strings.Contains(string(output), "the next start goes on") {
		t.Fatalf("the bank ends with %v:\n%s", err, output)
	}
	j := openTestJournal(t, path)
	if got := j.list(); len(got) != 1 || got[0] != newTestPayment("one", stepMoved) {
		t.Errorf("after a restart it has %+v", got)
	}
	if err := j.write(newTestPayment("three", stepMoved)); err != nil {
		t.Error(err)
	}
	if got := openTestJournal(t, path).list(); len(got) != 2 {
		t.Errorf("after another restart it has %+v", got)
	}
}

// A line that a crash has cut never was. Whatever else cannot be read is for a person: a payment may be behind it.
func TestJournal_BrokenLine(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		read bool
	}{
		"cut":         {`{"ref":"bank-one","session":{"sessionId":"one"},"st`, true},
		"cut in text": {`{"ref":"ban`, true},
		"garbage":     {"\x00\x00\x00\x00\n", false},
		"other":       {"[]\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "payments.jsonl")
			if err := openTestJournal(t, path).write(newTestPayment("one", stepMoved)); err != nil {
				t.Fatal(err)
			}
			file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteString(test.text); err != nil {
				t.Fatal(err)
			}
			_ = file.Close()
			if !test.read {
				if j, err := openJournal(path); err == nil {
					t.Errorf("it has %+v", j.list())
				}
				return
			}
			j := openTestJournal(t, path)
			if got := j.list(); len(got) != 1 || got[0] != newTestPayment("one", stepMoved) {
				t.Errorf("it has %+v", got)
			}
			if err := j.write(newTestPayment("one", stepSettled)); err != nil {
				t.Fatal(err)
			}
			if got := openTestJournal(t, path).list(); len(got) != 1 || got[0] != newTestPayment("one", stepSettled) {
				t.Errorf("after the next step it has %+v", got)
			}
		})
	}
}

// A session has one payment.
func TestJournal_OnePaymentForASession(t *testing.T) {
	j := openTestJournal(t, filepath.Join(t.TempDir(), "payments.jsonl"))
	for _, step := range []string{stepMoved, stepOwed, stepBack, stepConfirmed} {
		first, second := newTestPayment("one", step), newTestPayment("one", stepMoved)
		second.Ref = "bank-two"
		if err := j.write(first); err != nil {
			t.Fatal(err)
		}
		if err := j.write(second); err == nil {
			t.Errorf("while the other is %s, it takes another payment", step)
		}
		if got := j.list(); len(got) != 1 || got[0] != first {
			t.Errorf("it has %+v", got)
		}
	}
}
