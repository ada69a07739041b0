package link

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

func TestTheClientLogsToTheLogItIsGiven(t *testing.T) {
	var out bytes.Buffer
	LogTo(slog.New(slog.NewJSONHandler(&out, nil)))
	defer LogTo(slog.New(slog.DiscardHandler))

	// Nothing ever listens on port 1 of this address.
	l, err := Open(Options{URL: "redis://:hunter2@127.0.0.1:1", Timeout: defaultTimeout})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := l.Client.Do(t.Context(), "PING").Err(); err == nil {
		t.Fatal("a server answered that is not there")
	}

	var line struct {
		Level   string `json:"level"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%q: %v", out.String(), err)
	}
	if line.Level != "WARN" || !strings.Contains(line.Message, "127.0.0.1:1") {
		t.Errorf("logged %q", out.String())
	}
	if strings.Contains(out.String(), "hunter2") {
		t.Errorf("the password is in %q", out.String())
	}
}
