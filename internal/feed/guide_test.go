package feed_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

func guide(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "webhooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Receivers are written by what the guide shows.
func TestGuide_ShowsABodyAsItIsSent(t *testing.T) {
	block := regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(guide(t))
	if block == nil {
		t.Fatal("the guide shows no body")
	}
	var example bytes.Buffer
	if err := json.Compact(&example, []byte(block[1])); err != nil {
		t.Fatal(err)
	}
	late := refusing(event(t, v1alpha1.EventLatePayment, session.Expired), feed.RefusedPayment{
		Ref: "card-2002", AmountCents: 1250, Currency: "EUR", PaidAt: expires.Add(-time.Second),
	}, expires)
	news := late.Session
	news.Charge = session.Charge{AmountCents: 1250, OrderRef: "1001"}
	news.CreatedAt = time.UnixMilli(1795252500000)
	news.ExpiresAt = news.CreatedAt.Add(15 * time.Minute)
	news.EndedAt, news.Sequence, late.MerchantID = news.ExpiresAt, 2, "45tolpnyxhz4"
	if diff := cmp.Diff(string(encode(t, late)), example.String()); diff != "" {
		t.Errorf("(-sent +guide):\n%s", diff)
	}
}

func TestGuide_NamesEveryFieldAndKind(t *testing.T) {
	text := guide(t)
	var names []string
	for _, event := range golden(t) {
		var body struct {
			Type string         `json:"type"`
			Data map[string]any `json:"data"`
		}
		if err := json.Unmarshal(encode(t, event), &body); err != nil {
			t.Fatal(err)
		}
		names = append(names, body.Type)
		for field := range body.Data {
			names = append(names, field)
		}
	}
	for _, name := range names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/webhooks.md does not name %s", name)
		}
	}
}
