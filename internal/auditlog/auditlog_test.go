package auditlog_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/auditlog"
	"github.com/merchant-operator/merchant-operator/test/audittest"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

// A line with everything has just the fields that the page describes, whatever the level of the log; one with nothing has no empty fields.
func TestWrite_Fields(t *testing.T) {
	var buffer logtest.Buffer
	log := auditlog.New(slog.New(slog.NewJSONHandler(&buffer, &slog.HandlerOptions{Level: slog.LevelError})))
	log.Write(t.Context(), auditlog.Line{
		Change: auditlog.Permissions, To: "read", Cause: "API", KeyID: "abcdefghijkl", Generation: 2, Namespace: "shops", Name: "till",
		MerchantID: "mnopqrstuvwx", ChangedAt: time.Unix(0, 0),
		Origin: auditlog.Origin{By: auditlog.Person, Account: "console", Actor: "ada", Address: "203.0.113.7", RequestID: "r1"},
	}, auditlog.Line{Change: auditlog.Deleted})
	lines := audittest.Lines(t, buffer.String())
	if len(lines) != 2 {
		t.Fatalf("%d lines: %s", len(lines), buffer.String())
	}
	got := map[string]bool{"time": true, "level": true, "msg": true, "logger": true}
	for field := range lines[0] {
		got[field] = true
	}
	if diff := cmp.Diff(audittest.Fields(t), got); diff != "" {
		t.Errorf("fields (-%s +written):\n%s", audittest.Page, diff)
	}
	if diff := cmp.Diff(audittest.Line{"change": "deleted"}, lines[1]); diff != "" {
		t.Errorf("the least line (-want +got):\n%s", diff)
	}
}
