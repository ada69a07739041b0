//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func openTestBooks(t *testing.T, path string) *books {
	t.Helper()
	b, err := openBooks(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.file.Close() })
	return b
}

func newTestPayment(id string) payment {
	return payment{Ref: "bank-" + id, Step: stepMoved, Session: session{ID: id, AmountCents: 1250}}
}

// wantPayments: the books have the payments of these sessions alone.
func (b *books) wantPayments(t *testing.T, sessions ...string) {
	t.Helper()
	var got []string
	for _, p := range b.payments() {
		got = append(got, p.Session.ID)
	}
	if !slices.Equal(got, sessions) {
		t.Errorf("the books have payments of %q, want %q", got, sessions)
	}
}

const fullDisk = "BOOKS_ON_A_FULL_DISK"

// writeToFullDisk moves money, and then money of which the disk takes only the first bytes.
func writeToFullDisk(t *testing.T, path string) {
	t.Helper()
	b := openTestBooks(t, path)
	if err := b.charge(newTestPayment("one")); err != nil {
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
	_ = b.payBack("rp_1", "bank-one", 1250)
	t.Fatal("the bank goes on after money has moved that is not on the disk")
}

// A bank whose disk does not take a line ends before anything follows from it. The next start has the lines before, and moves the money once.
func TestBooks_DiskFull(t *testing.T) {
	if path := os.Getenv(fullDisk); path != "" {
		writeToFullDisk(t, path)
	}
	path := filepath.Join(t.TempDir(), "books.jsonl")
	bank := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBooks_DiskFull$")
	bank.Env = append(os.Environ(), fullDisk+"="+path)
	output, err := bank.CombinedOutput()
	if !errors.As(err, new(*exec.ExitError)) || !strings.Contains(string(output), "the next start goes on") {
		t.Fatalf("the bank ends with %v:\n%s", err, output)
	}
	for want := range 2 {
		b := openTestBooks(t, path)
		b.wantPayments(t, "one")
		if got := b.back("bank-one"); got != int64(want)*1250 {
			t.Errorf("%d cents went back before start %d", got, want+1)
		}
		if err := b.payBack("rp_1", "bank-one", 1250); err != nil {
			t.Error(err)
		}
	}
}

// A line that a crash has cut never was. Whatever else cannot be read is for a person: money may have moved.
func TestBooks_BrokenLine(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		read bool
	}{
		"cut":         {`{"kind":"payment","name":"bank-two","session":{"sessionId":"two"},"a`, true},
		"cut in text": {`{"kind":"pay`, true},
		"garbage":     {"\x00\x00\x00\x00\n", false},
		"other":       {"[]\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "books.jsonl")
			if err := openTestBooks(t, path).charge(newTestPayment("one")); err != nil {
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
				if b, err := openBooks(path); err == nil {
					t.Errorf("it has %+v", b.payments())
				}
				return
			}
			b := openTestBooks(t, path)
			b.wantPayments(t, "one")
			if err := b.charge(newTestPayment("two")); err != nil {
				t.Fatal(err)
			}
			openTestBooks(t, path).wantPayments(t, "one", "two")
		})
	}
}

// A session has one payment, also after a restart.
func TestBooks_OnePaymentForASession(t *testing.T) {
	path := filepath.Join(t.TempDir(), "books.jsonl")
	second := newTestPayment("one")
	second.Ref = "bank-two"
	if err := openTestBooks(t, path).charge(newTestPayment("one")); err != nil {
		t.Fatal(err)
	}
	b := openTestBooks(t, path)
	if err := b.charge(second); !errors.Is(err, errPaid) {
		t.Errorf("another payment gets %v", err)
	}
	b.wantPayments(t, "one")
}

// The bank gives back money of a payment that it has, once for each name, under which it gives nothing else, and at most the payment. Money that went back before the account was closed
// stays so.
func TestBooks_PayBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "books.jsonl")
	if err := openTestBooks(t, path).charge(newTestPayment("one")); err != nil {
		t.Fatal(err)
	}
	closed := false
	for _, step := range []struct {
		name, payment string
		cents         int64
		closed        bool
		want          error
		back          int64
	}{
		{"rf_1", "bank-two", 500, false, errUnknown, 0},
		{"rf_1", "bank-one", 500, false, nil, 500},
		{"rf_1", "bank-one", 500, false, nil, 500},
		{"rf_1", "bank-one", 499, false, errOther, 500},
		{"rf_1", "bank-two", 500, false, errOther, 500},
		{"rf_2", "bank-one", 751, false, errTooMuch, 500},
		{"rf_2", "bank-one", 500, false, nil, 1000},
		{"rf_3", "bank-one", 250, true, errClosed, 1000},
		{"rf_2", "bank-one", 500, true, nil, 1000},
	} {
		b := openTestBooks(t, path) // as after a restart
		if step.closed && !closed {
			b.closeAccount("bank-one")
			closed = true
		}
		if err := b.payBack(step.name, step.payment, step.cents); !errors.Is(err, step.want) || b.back("bank-one") != step.back {
			t.Errorf("%+v: %v, and %d cents went back", step, err, b.back("bank-one"))
		}
	}
}
