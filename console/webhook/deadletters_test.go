package webhook

import (
	"testing"

	"golang.org/x/text/language"

	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// A reason has a sentence of its own, and one of a newer dispatcher is named.
func TestDeadLetters_Reasons(t *testing.T) {
	english, err := web.LoadWords(language.English)
	if err != nil {
		t.Fatal(err)
	}
	for reason, want := range map[string]string{"status_4xx": "Your server answered 404.", "timeout": "Your server did not answer in time.", "new": "It could not be sent (new)."} {
		if got := newDeadLetter(english, outbox.DeadLetter{Details: outbox.Details{Reason: reason, Answer: "404"}}).Why; got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}
