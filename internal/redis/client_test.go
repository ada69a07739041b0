package redis

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/leaks"
)

func TestMain(m *testing.M) { leaks.Run(m, func() error { return nil }) }

func TestOpen_Log(t *testing.T) {
	var out bytes.Buffer
	// Nothing ever listens on port 1 of this address.
	c, err := Open(Options{URL: "redis://:hunter2@127.0.0.1:1", Log: slog.New(slog.NewJSONHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	defer redis.SetLogger(clientLog{slog.New(slog.DiscardHandler)})
	if err := c.client.Do(t.Context(), "PING").Err(); err == nil {
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
