package session

import (
	"strconv"
	"strings"
	"time"
)

// testAccount follows the merchant id in the account of test mode. No merchant id has a dot.
const testAccount = ".test"

// Account is whose state something is: a merchant's, and apart from it the same merchant's in test mode. What names an account keeps
// the two modes as apart as two merchants; they share a bucket.
func Account(merchantID string, testMode bool) string {
	if testMode {
		return merchantID + testAccount
	}
	return merchantID
}

// ParseAccount is the inverse of Account.
func ParseAccount(account string) (merchantID string, testMode bool) {
	return strings.CutSuffix(account, testAccount)
}

// Test sessions of these amounts settle without a rail.
const (
	TestAmountCompletes  = 990_001
	TestAmountFails      = 990_002
	TestAmountExpires    = 990_003
	TestAmountMismatches = 990_004
	TestAmountLate       = 990_005
)

const (
	// TestOutcomeDelay is from the creation of a test session until it settles.
	TestOutcomeDelay = time.Second
	// shortLifetime is that of test sessions whose outcome is to expire.
	shortLifetime = TestOutcomeDelay
	// testReason is the reason of test sessions that fail.
	testReason = "insufficient funds"
)

// TestOutcome is how a test session settles without a rail.
type TestOutcome struct {
	// Lifetime is that of the session; 0: as the merchant's others.
	Lifetime time.Duration
	// Payment is reported after TestOutcomeDelay; the zero Payment: none is.
	Payment Payment
	// Late: the payment is reported after the end, else before it only.
	Late bool
}

// NewTestOutcome returns how a test session of the amount settles without a rail; false: it does not.
func NewTestOutcome(amountCents int64) (TestOutcome, bool) {
	switch amountCents {
	case TestAmountCompletes:
		return TestOutcome{Payment: NewTestPayment(Completed, amountCents)}, true
	case TestAmountFails:
		payment := NewTestPayment(Failed, amountCents)
		payment.Reason = testReason
		return TestOutcome{Payment: payment}, true
	case TestAmountExpires:
		return TestOutcome{Lifetime: shortLifetime}, true
	case TestAmountMismatches:
		return TestOutcome{Payment: NewTestPayment(Completed, amountCents-1)}, true
	case TestAmountLate:
		return TestOutcome{Lifetime: shortLifetime, Payment: NewTestPayment(Completed, amountCents), Late: true}, true
	}
	return TestOutcome{}, false
}

// NewTestPayment is a payment of a test session. Its reference is derived from the rest, so that the same payment is reported once.
func NewTestPayment(outcome Status, amountCents int64) Payment {
	return Payment{
		Ref:     "test_" + strings.ToLower(string(outcome)) + "_" + strconv.FormatInt(amountCents, 10),
		Outcome: outcome, AmountCents: amountCents,
	}
}
