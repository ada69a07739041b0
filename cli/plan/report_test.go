package plan

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// hostile is text that a tenant can have in an object that is refused.
const hostile = "`@octocat` [x](https://evil.example) <img src=x onerror=alert(1)> | #1\n\n# Approved\x1b[2J"

func refusedState() State {
	return State{Now: now, Merchants: []Object[v1alpha1.Merchant]{
		{Kind: "Merchant", Namespace: "shops", Name: hostile, Source: hostile, Refused: "metadata.name: Invalid value: " + hostile},
	}}
}

// span is text between backticks, in which Markdown means nothing.
var codeSpan = regexp.MustCompile("`[^`\n]*`")

func TestReport_WriteMarkdown_TenantTextIsCode(t *testing.T) {
	var text strings.Builder
	if err := NewReport(refusedState(), 0).WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}
	outside := codeSpan.ReplaceAllString(text.String(), "CODE")
	want := "### Merchants and keys\n\n0 to create, 0 to change, 0 to delete, 1 refused, 0 unchanged; 0 objects of other kinds ignored. Something ends or is refused, or may be.\n" +
		"\n**refused CODE** CODE\n- **REFUSED** CODE\n"
	if diff := cmp.Diff(want, outside); diff != "" {
		t.Errorf("outside of code (-want +got):\n%s", diff)
	}
}

func TestReport_WriteMarkdown(t *testing.T) {
	var text strings.Builder
	state := State{
		Now:       now,
		Merchants: []Object[v1alpha1.Merchant]{{Kind: "Merchant", Namespace: "shops", Name: "acme", Source: "acme.yaml", After: acme()}},
		ApiKeys: []Object[v1alpha1.ApiKey]{
			{Kind: "ApiKey", Namespace: "shops", Name: "till", Source: "till.yaml", Before: key(), After: key(trigger)},
			{Kind: "ApiKey", Namespace: "shops", Name: "kiosk", Source: "kiosk.yaml", Before: key(), After: key()},
		},
	}
	if err := NewReport(state, 2).WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}
	want := "### Merchants and keys\n\n1 to create, 1 to change, 0 to delete, 0 refused, 1 unchanged; 2 objects of other kinds ignored. Something ends or is refused, or may be.\n" +
		"\n**change `ApiKey`** `shops/till`: `spec.rotation.trigger`\n" +
		"- **ENDS** spec.rotation.trigger changes: The key `mk_live_2yylmkzckvhj_0123` is replaced and gets 401 1h after that. The new key is delivered in Secret `till-key`. Last used at 2026-11-23T11:00:00Z.\n" +
		"\n<details><summary>Changes that end nothing</summary>\n\n**create `Merchant`** `shops/acme`\n\n</details>\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A comment on a merge request has a limit.
func TestReport_WriteMarkdown_IsBounded(t *testing.T) {
	state := State{Now: now}
	for i := range 2000 {
		state.ApiKeys = append(state.ApiKeys, Object[v1alpha1.ApiKey]{Kind: "ApiKey", Namespace: "shops", Name: fmt.Sprintf("till-%d", i), Source: "all.yaml", Before: key(), After: key(trigger)})
	}
	var text strings.Builder
	if err := NewReport(state, 0).WriteMarkdown(&text); err != nil {
		t.Fatal(err)
	}
	if text.Len() > 65_000 || !regexp.MustCompile(`\n\d{4} objects more: see the text of the plan\.\n`).MatchString(text.String()) {
		t.Errorf("%d bytes, which end with %q", text.Len(), text.String()[text.Len()-200:])
	}
}

func TestReport_WriteText_ObeysNoTerminal(t *testing.T) {
	var text strings.Builder
	if err := NewReport(refusedState(), 0).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(text.String(), "\x1b`") || strings.Count(text.String(), "\n") != 3 {
		t.Errorf("%q", text.String())
	}
}

// Programs rely on these names.
func TestReport_WriteJSON(t *testing.T) {
	var text strings.Builder
	state := State{Now: now, ApiKeys: []Object[v1alpha1.ApiKey]{{Kind: "ApiKey", Namespace: "shops", Name: "till", Source: "till.yaml", Before: key(), After: key(trigger)}}}
	if err := NewReport(state, 1).WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	want := `{
    "ends": true,
    "changes": [
        {
            "kind": "ApiKey",
            "namespace": "shops",
            "name": "till",
            "source": "till.yaml",
            "action": "change",
            "fields": [
                "spec.rotation.trigger"
            ],
            "effects": [
                {
                    "type": "KeyRotates",
                    "severity": "ends",
                    "message": "spec.rotation.trigger changes: The key mk_live_2yylmkzckvhj_0123 is replaced and gets 401 1h after that. The new key is delivered in Secret till-key. Last used at 2026-11-23T11:00:00Z.",
                    "lastUsedTime": "2026-11-23T11:00:00Z"
                }
            ]
        }
    ],
    "unchanged": 0,
    "ignored": 1
}
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The page has every type of effect.
func TestEffects_AreDocumented(t *testing.T) {
	page := repository.Read(t, "docs", "gitops.md")
	for _, file := range []string{"apikey.go", "merchant.go", "object.go"} {
		for _, found := range regexp.MustCompile(`Type: "(\w+)"`).FindAllStringSubmatch(repository.Read(t, "cli", "plan", file), -1) {
			if !strings.Contains(page, "`"+found[1]+"`") {
				t.Errorf("docs/gitops.md has no %s", found[1])
			}
		}
	}
}
