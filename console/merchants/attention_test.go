package merchants

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/language"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/console/webhook"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// What a shop owner reads first, and the one action that fixes it, if the viewer may do it.
func TestMerchantPage_Attention(t *testing.T) {
	now := time.Date(2026, 11, 24, 15, 0, 0, 0, time.UTC) // a Tuesday
	hourAgo := metav1.NewTime(now.Add(-time.Hour))
	english, err := web.LoadWords(language.English)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(blocks ...v1alpha1.RefusedBlock) func(*merchantPage) {
		return func(p *merchantPage) { p.Merchant.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: blocks} }
	}
	till := v1alpha1.RefusedBlock{Block: "203.0.113.0/24", Requests: 12, LastSeen: hourAgo}
	key := func(change func(*keys.Row)) func(*merchantPage) {
		return func(p *merchantPage) {
			row := keys.Row{}
			row.Name = "till-1"
			change(&row)
			p.Keys = append(p.Keys, row)
		}
	}
	endpoint := func(state outbox.EndpointState) func(*merchantPage) {
		return func(p *merchantPage) {
			health, err := webhook.NewHealth(p.Clock, state)
			if err != nil {
				t.Fatal(err)
			}
			p.Merchant.Spec.Webhook, p.Webhook = &v1alpha1.Webhook{URL: "https://shop.example"}, health
		}
	}
	oldest, err := session.ParseID("ps_abcdefgh2345T2xV9bLrYc8WdNeHq7")
	if err != nil {
		t.Fatal(err)
	}
	overdue := func(count int64) func(*merchantPage) {
		return func(p *merchantPage) { p.Refunds = store.Overdue{Count: count, Oldest: oldest} }
	}
	failed := outbox.AttemptFailure{Time: hourAgo.Time, Reason: "ServerError", Answer: "503"}
	for _, test := range []struct {
		name         string
		change       func(*merchantPage)
		text, action string // action and where it leads
		withoutRight bool   // the action needs no right
	}{
		{name: "nothing", change: func(*merchantPage) {}},
		{"suspended", func(p *merchantPage) { p.Merchant.Spec.State = v1alpha1.MerchantSuspended }, "The platform team has suspended this merchant.", "", false},
		{"gone", endpoint(outbox.EndpointState{DisabledAt: now.Add(-24 * time.Hour), Cause: outbox.EndpointGone}), "Your server answered 410 Gone, so we stopped sending yesterday at 15:00.", "Resume delivery: POST /m/webhook/resume", false},
		{"disabled", endpoint(outbox.EndpointState{DisabledAt: now.Add(-72 * time.Hour), Cause: outbox.EndpointFailing, LastFailure: failed}), "so we stopped sending on Saturday at 15:00. Your server answered 503: it fails.", "Resume delivery: POST /m/webhook/resume", false},
		{"refused", endpoint(outbox.EndpointState{PermanentSince: hourAgo.Time, LastFailure: outbox.AttemptFailure{Time: hourAgo.Time, Reason: "URLRefused"}}), "The URL is not allowed. Nothing is sent there.", "See why: /m#attempts", true},
		{"failing", endpoint(outbox.EndpointState{FailingSince: hourAgo.Time, LastFailure: failed}), "Your server answered 503: it fails. Nothing was accepted since an attempt today at 14:00.", "See why: /m#attempts", true},
		{"failing for a minute", endpoint(outbox.EndpointState{FailingSince: now.Add(-time.Minute), LastFailure: failed}), "Your server answered 503: it fails. We try again.", "See why: /m#attempts", true},
		{"rejected once", endpoint(outbox.EndpointState{FailingSince: hourAgo.Time, PermanentSince: hourAgo.Time, LastFailure: outbox.AttemptFailure{Reason: "Rejected", Answer: "404"}}), "Your server answered 404: it rejects the event.", "See why: /m#attempts", true},
		{"dead letter", endpoint(outbox.EndpointState{HealthySince: hourAgo.Time, Dead: 1}), "An event was not delivered to your server.", "Send again: /m/dead-letters/resend", false},
		{"dead letters", endpoint(outbox.EndpointState{HealthySince: hourAgo.Time, Dead: 1200}), "1,200 events were not delivered to your server.", "Send again: /m/dead-letters/resend", false},
		{"refund", overdue(1), "A refund has waited for more than a week.", "Show the oldest: /m/payments/" + oldest.String(), false},
		{"refunds", overdue(12), "12 refunds have waited for more than a week.", "Show the oldest: /m/payments/" + oldest.String(), false},
		{"blocked", refused(till), "12 requests with a good key were refused in the last day: their address in 203.0.113.0/24 is not on the allowlist.", "Allow this network: /m/allowlist?add=203.0.113.0%2F24", false},
		{"blocked by a key's list", refused(v1alpha1.RefusedBlock{Block: "203.0.113.0/24", KeyID: "abcdefgh2345", Requests: 2, LastSeen: hourAgo}), "Requests from 203.0.113.0/24 were blocked in the last day: it is not on the own list of key abcdefgh2345.", "", false},
		{"blocked twice", refused(till, till), "from 2 networks in the last day", "Look at them: /m#allowlist", true},
		{name: "blocked long ago", change: refused(v1alpha1.RefusedBlock{Block: "203.0.113.0/24", Requests: 1, LastSeen: metav1.NewTime(now.Add(-25 * time.Hour))})},
		{"reported", func(p *merchantPage) { refused(till)(p); p.Allowlist.ReportOnly = true }, "The list only reports.", "Allow this network: /m/allowlist?add=203.0.113.0%2F24", false},
		{"old key", key(func(k *keys.Row) { k.Overlap, k.OldKeyUse.Used = &metav1.Time{Time: now.Add(24 * time.Hour)}, true }), "The old key of till-1 is still used. It ends tomorrow at 15:00", "Show the key: /m?key=till-1#key-till-1", true},
		{name: "old key that nobody uses", change: key(func(k *keys.Row) { k.Overlap = &hourAgo })},
		{"expiring", key(func(k *keys.Row) { k.Expiring, k.Spec.ExpiresAt = true, &metav1.Time{Time: now.Add(time.Hour)} }), "The key till-1 expires today at 16:00.", "Make another key: /m/new-key", false},
		{"lost", key(func(k *keys.Row) { k.Lost = true }), "The key of till-1 was lost", "Make a new one: /m/keys/till-1/rotate", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			page := merchantPage{Merchant: &v1alpha1.Merchant{}, Base: "/m", Clock: web.Clock{Words: english, Now: now, Location: time.UTC}, Rights: rights.Rights{ViewPayments: true, IssueKeys: true, RotateKeys: true, EditAllowlist: true, EditWebhook: true}}
			test.change(&page)
			text, action := attentionText(t, &page)
			if text == "" != (test.text == "") || !strings.Contains(text, test.text) || action != test.action {
				t.Errorf("%q, %q\nwant %q, %q", text, action, test.text, test.action)
			}
			page.Rights = rights.Rights{}
			without := ""
			if test.withoutRight {
				without = test.action
			}
			if _, action := attentionText(t, &page); action != without {
				t.Errorf("without a right: %q, want %q", action, without)
			}
		})
	}
}

var tags = regexp.MustCompile(`<[^>]*>`)

// attentionText is what the page says, without markup, and the actions.
func attentionText(t *testing.T, page *merchantPage) (text, action string) {
	t.Helper()
	found, err := page.attention(page.Clock.Words)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range found {
		text += tags.ReplaceAllString(string(a.Text), "")
		switch {
		case a.Post:
			action += a.Action + ": POST " + a.Link
		case a.Action != "":
			action += a.Action + ": " + a.Link
		}
	}
	return text, action
}

// The page offers no action that Git would undo.
func TestMerchantPage_AttentionGitManaged(t *testing.T) {
	m := &v1alpha1.Merchant{Spec: v1alpha1.MerchantSpec{Webhook: &v1alpha1.Webhook{URL: "https://shop.example"}}}
	m.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{{Block: "203.0.113.0/24", Requests: 2, LastSeen: metav1.Now()}}}
	english, err := web.LoadWords(language.English)
	if err != nil {
		t.Fatal(err)
	}
	clock := web.Clock{Words: english, Now: time.Now(), Location: time.UTC}
	git := merchantPage{Merchant: m, Base: "/m", Clock: clock, Rights: rights.Rights{ViewPayments: true, IssueKeys: true, RotateKeys: true, EditAllowlist: true, EditWebhook: true}, Manager: gitops.Manager{Tool: "Flux"}}
	if text, action := attentionText(t, &git); action != "" || !strings.Contains(text, "203.0.113.0/24") {
		t.Errorf("what Git manages: %q, %q", text, action)
	}
}
