package store

import (
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// The rules on how a session ends, as transition.lua reads them. They are decided in package session;
// the scripts only look them up.
var (
	cancelRules = rulesOf(func(status session.Status, _ session.Standing, _ bool) session.Verdict {
		return session.Cancel(status)
	}, session.Unheard)
	completeRules = settleRules(session.Completed)
	failRules     = settleRules(session.Failed)
)

func settleRules(outcome session.Status) string {
	return rulesOf(func(status session.Status, known session.Standing, sameAmount bool) session.Verdict {
		return session.Settle(status, outcome, known, sameAmount)
	}, session.Unheard, session.Settled, session.Refused)
}

// rulesOf writes down the verdict on every case there can be.
func rulesOf(
	decide func(session.Status, session.Standing, bool) session.Verdict, standings ...session.Standing,
) string {
	statuses := []session.Status{session.Pending, session.Completed, session.Failed, session.Expired, session.Cancelled}
	var cases []string
	for _, known := range standings {
		for _, status := range statuses {
			for _, amount := range []string{"same", "other"} {
				verdict := decide(status, known, amount == "same")
				cases = append(cases, string(known)+"/"+string(status)+"/"+amount+"="+string(verdict))
			}
		}
	}
	return strings.Join(cases, " ")
}
