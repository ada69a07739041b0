package payments

import (
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// What is kept is bounded.
func TestClosedDays_Bounded(t *testing.T) {
	days, now := newClosedDays(), time.Now()
	closed := DayTotals{Day: payments.DayAt(now.Add(-48*time.Hour), time.UTC)}
	for i := range maxClosedDays + 1 {
		days.put(store.Account{MerchantID: strings.Repeat("m", i)}, &closed, now)
	}
	if len(days.byDay) > maxClosedDays || !days.get(store.Account{MerchantID: strings.Repeat("m", maxClosedDays)}, &closed, now) {
		t.Errorf("%d days are kept", len(days.byDay))
	}
}
