package session_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

func TestAccount(t *testing.T) {
	for _, testMode := range []bool{false, true} {
		account := session.Account("abcdefgh2345", testMode)
		if merchantID, read := session.ParseAccount(account); merchantID != "abcdefgh2345" || read != testMode {
			t.Errorf("%s is read as %s, %t", account, merchantID, read)
		}
	}
}

// Developers rely on the amounts of docs/test-mode.md, and no other amount may act.
func TestNewTestOutcome_Guide(t *testing.T) {
	guide := repository.Read(t, "docs/test-mode.md")
	settling := 0
	for amount := int64(1); amount <= session.MaxAmountCents; amount++ {
		outcome, settles := session.NewTestOutcome(amount)
		if !settles {
			continue
		}
		settling++
		if !strings.Contains(guide, fmt.Sprintf("\n| %d | ", amount)) {
			t.Errorf("the guide has no amount %d", amount)
		}
		if outcome.Payment != (session.Payment{}) && outcome.Payment.Validate() != nil {
			t.Errorf("%d: %v", amount, outcome.Payment.Validate())
		}
	}
	if rows := strings.Count(guide, "\n| 9900"); settling != rows {
		t.Errorf("%d amounts settle, and the guide has %d", settling, rows)
	}
}
