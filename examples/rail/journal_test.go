//go:build unix

package main

import (
	"errors"
	"os"
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

// limitFiles is how many bytes a file may have, as on a full disk, which takes the first part of a line.
func limitFiles(t *testing.T, size uint64) (restore func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	restore = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	return restore
}

// A step that the disk does not take is not remembered, and nothing after it either, until a restart reads what was.
func TestJournal_DiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "payments.jsonl")
	j := openTestJournal(t, path)
	first := payment{Ref: "bank-1", Session: "one", Step: stepMoved}
	if err := j.write(first); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	restore := limitFiles(t, uint64(len(whole))+20)
	if err := j.write(payment{Ref: "bank-2", Session: "two", Step: stepMoved}); err == nil {
		t.Fatal("the disk has taken a line that is too long for it")
	}
	restore()
	if err := j.write(payment{Ref: "bank-3", Session: "three", Step: stepMoved}); err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("after a failed write: %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(whole) {
		t.Errorf("the file is %q, %v", now, err)
	}
	j = openTestJournal(t, path)
	if got := j.list(); len(got) != 1 || got[0] != first {
		t.Errorf("after a restart it has %+v", got)
	}
	if err := j.write(payment{Ref: "bank-3", Session: "three", Step: stepMoved}); err != nil {
		t.Error(err)
	}
	if got := openTestJournal(t, path).list(); len(got) != 2 {
		t.Errorf("after another restart it has %+v", got)
	}
}

// A line that a crash has cut never was.
func TestJournal_CutLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "payments.jsonl")
	moved, settled := payment{Ref: "bank-1", Session: "one", Step: stepMoved}, payment{Ref: "bank-1", Session: "one", Step: stepSettled}
	if err := openTestJournal(t, path).write(moved); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"ref":"bank-1","session":"one","st`); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	j := openTestJournal(t, path)
	if got := j.list(); len(got) != 1 || got[0] != moved {
		t.Errorf("it has %+v", got)
	}
	if err := j.write(settled); err != nil {
		t.Fatal(err)
	}
	if got := openTestJournal(t, path).list(); len(got) != 1 || got[0] != settled {
		t.Errorf("after the next step it has %+v", got)
	}
}

// A session has one payment at a time, unless the money of the other is back.
func TestJournal_OnePaymentForASession(t *testing.T) {
	j := openTestJournal(t, filepath.Join(t.TempDir(), "payments.jsonl"))
	for _, step := range []string{stepMoved, stepCheck, stepSettled, stepOwed} {
		if err := j.write(payment{Ref: "bank-1", Session: "one", Step: step}); err != nil {
			t.Fatal(err)
		}
		if err := j.write(payment{Ref: "bank-2", Session: "one", Step: stepMoved}); !errors.Is(err, errPaying) {
			t.Errorf("while the other is %s: %v", step, err)
		}
	}
	for _, p := range []payment{{Ref: "bank-1", Session: "one", Step: stepBack}, {Ref: "bank-2", Session: "one", Step: stepMoved}} {
		if err := j.write(p); err != nil {
			t.Error(err)
		}
	}
}
