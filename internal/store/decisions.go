package store

import (
	"fmt"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// How a session ends is decided in package session. The scripts get its decisions in all cases as a table, and only look up theirs.

// statuses are those of a session when it is to end.
var statuses = []session.Status{session.Pending, session.Completed, session.Failed, session.Expired, session.Cancelled}

// cancelDecisions is a part that defines decisions[status].
func cancelDecisions() string {
	var table strings.Builder
	for _, status := range statuses {
		fmt.Fprintf(&table, "  %s = '%s',\n", status, session.Cancel(status))
	}
	return "local decisions = {\n" + table.String() + "}\n"
}

// settleDecisions is a part that defines decisions[payment][status][same or other amount]. It expects outcome and merchant_deleted, so that each
// run makes a table only for what it was given.
func settleDecisions() string {
	var lua strings.Builder
	lua.WriteString("local decisions\n")
	for _, deleted := range []bool{false, true} {
		for _, outcome := range []session.Status{session.Completed, session.Failed} {
			settle, flag := session.Settle, 0
			if deleted {
				settle, flag = session.SettleDeleted, 1
			}
			fmt.Fprintf(&lua, "if outcome == '%s' and merchant_deleted == '%d' then\n  decisions = {\n", outcome, flag)
			for _, payment := range []session.PaymentState{session.PaymentUnknown, session.PaymentSettled, session.PaymentRefused} {
				fmt.Fprintf(&lua, "    %s = {\n", payment)
				for _, status := range statuses {
					fmt.Fprintf(&lua, "      %s = {same = '%s', other = '%s'},\n",
						status, settle(status, outcome, payment, true), settle(status, outcome, payment, false))
				}
				lua.WriteString("    },\n")
			}
			lua.WriteString("  }\nend\n")
		}
	}
	return lua.String()
}
