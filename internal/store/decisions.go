package store

import (
	"fmt"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Package session decides how a session ends, who may hold it, and what becomes of a refund. The scripts get its decisions in all cases as a table,
// and look up theirs. Three add to them: hold.lua refuses a hold that would last too long, or for a merchant that is not active; refund.lua rejects
// open requests that a refund leaves no room for; and lib/request_refund.lua takes a refund that its rail has confirmed for a request that Redis lost.

// statuses are those of a session when it is to end.
var statuses = []session.Status{session.Pending, session.Completed, session.Failed, session.Expired, session.Cancelled}

// cancelDecisions is a part that defines decisions[status][held by nobody or other].
func cancelDecisions() string {
	var lua strings.Builder
	for _, status := range statuses {
		fmt.Fprintf(&lua, "  %s = {nobody = '%s', other = '%s'},\n", status, session.Cancel(status, false), session.Cancel(status, true))
	}
	return "local decisions = {\n" + lua.String() + "}\n"
}

// holdDecisions is a part that defines decisions[status][holder][new, used or release].
func holdDecisions() string {
	var lua strings.Builder
	for _, status := range statuses {
		fmt.Fprintf(&lua, "  %s = {\n", status)
		for _, holder := range []session.Holder{session.HeldByNobody, session.HeldBySelf, session.HeldByOther} {
			fmt.Fprintf(&lua, "    %s = {new = '%s', used = '%s', release = '%s'},\n",
				holder, session.Hold(status, holder, false), session.Hold(status, holder, true), session.Release(status, holder))
		}
		lua.WriteString("  },\n")
	}
	return "local decisions = {\n" + lua.String() + "}\n"
}

// paymentStates are those of a payment when it is reported.
var paymentStates = []session.PaymentState{
	session.PaymentUnknown, session.PaymentExcluded, session.PaymentSettled, session.PaymentRefused, session.PaymentFailed,
}

// settleDecisions is a part that defines decide(outcome, merchant_deleted, payment, status, same_amount). A call makes a table only for what it was
// given.
func settleDecisions() string {
	var lua strings.Builder
	lua.WriteString("local function decide(outcome, merchant_deleted, payment, status, same_amount)\n")
	for _, deleted := range []bool{false, true} {
		for _, outcome := range []session.Status{session.Completed, session.Failed} {
			settle, flag := session.Settle, "no"
			if deleted {
				settle, flag = session.SettleDeleted, "yes"
			}
			fmt.Fprintf(&lua, "  if outcome == '%s' and merchant_deleted == '%s' then\n", outcome, flag)
			for _, payment := range paymentStates {
				fmt.Fprintf(&lua, "    if payment == '%s' then\n      return ({\n", payment)
				for _, status := range statuses {
					fmt.Fprintf(&lua, "        %s = same_amount and '%s' or '%s',\n",
						status, settle(status, outcome, payment, true), settle(status, outcome, payment, false))
				}
				lua.WriteString("      })[status]\n    end\n")
			}
			lua.WriteString("  end\n")
		}
	}
	return lua.String() + "end\n"
}

// refundDecisions is a part that defines decisions[refund][paid or unpaid][within or beyond][room or full].
func refundDecisions() string {
	var lua strings.Builder
	lua.WriteString("local decisions = {\n")
	for _, refund := range []session.RefundState{session.RefundUnknown, session.RefundSame, session.RefundOther} {
		decide := func(paid, within bool) string {
			return fmt.Sprintf("{room = '%s', full = '%s'}", session.DecideRefund(refund, paid, within, true), session.DecideRefund(refund, paid, within, false))
		}
		fmt.Fprintf(&lua, "  %s = {\n    paid = {within = %s, beyond = %s},\n    unpaid = {within = %s, beyond = %s},\n  },\n",
			refund, decide(true, true), decide(true, false), decide(false, true), decide(false, false))
	}
	return lua.String() + "}\n"
}

// requestDecisions is a part that defines decisions[request][completed or unpaid][within or beyond][room or full].
func requestDecisions() string {
	var lua strings.Builder
	lua.WriteString("local decisions = {\n")
	for _, request := range []session.RefundRequestState{session.RequestUnknown, session.RequestSame, session.RequestOther} {
		decide := func(completed, within bool) string {
			return fmt.Sprintf("{room = '%s', full = '%s'}",
				session.DecideRefundRequest(request, completed, within, true), session.DecideRefundRequest(request, completed, within, false))
		}
		fmt.Fprintf(&lua, "  %s = {\n    completed = {within = %s, beyond = %s},\n    unpaid = {within = %s, beyond = %s},\n  },\n",
			request, decide(true, true), decide(true, false), decide(false, true), decide(false, false))
	}
	return lua.String() + "}\n"
}

// rejectDecisions is a part that defines decisions[status of the request, or none].
func rejectDecisions() string {
	var lua strings.Builder
	for _, status := range []session.RefundStatus{session.RefundRequested, session.RefundConfirmed, session.RefundRejected} {
		fmt.Fprintf(&lua, "  %s = '%s',\n", status, session.DecideRejection(status))
	}
	return fmt.Sprintf("local decisions = {\n%s  none = '%s',\n}\n", lua.String(), session.DecideRejection(""))
}
