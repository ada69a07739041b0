package rail_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// createOne creates a session of one cent.
func (f *fixture) createOne() (id string) {
	f.t.Helper()
	return f.createOf(f.acme, func(s *store.NewSession) { s.Charge.AmountCents = 1 })
}

func inCurrency(currency string) string {
	return fmt.Sprintf(`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1250,"currency":%q}`, currency)
}

// What ends a session, and what does not. The steps go to two replicas in turn.
func TestSettle(t *testing.T) {
	const amount = 1250
	other := report("bank-2", "COMPLETED", amount)
	f := newFixture(t)
	replicas := []*fixture{f, f.other()}
	for name, test := range map[string]struct {
		steps  []step
		status session.Status // in the end
		shown  map[string]string
	}{
		"paid":         {[]step{{paid(amount), completed}}, "COMPLETED", map[string]string{"paymentRef": "bank-1"}},
		"failed":       {[]step{{failure(amount), failed}}, "FAILED", map[string]string{"paymentRef": "bank-1"}},
		"paid again":   {[]step{{paid(amount), completed}, {paid(amount), completed}, {paid(amount), completed}}, "COMPLETED", map[string]string{"paymentRef": "bank-1"}},
		"failed again": {[]step{{failure(amount), failed}, {failure(amount), failed}}, "FAILED", map[string]string{"paymentRef": "bank-1"}},
		"failed, with a reason": {[]step{
			{`{"paymentRef":"bank-1","outcome":"FAILED","amountCents":1250,"reason":"insufficient funds","paidAt":"2026-11-21T10:00:00Z"}`, failed},
		}, "FAILED", map[string]string{"paymentRef": "bank-1", "reason": "insufficient funds"}},
		"cancelled":                  {[]step{{cancel, "200"}, {cancel, "200"}}, "CANCELLED", nil},
		"a cancel after the payment": {[]step{{paid(amount), completed}, {cancel, "409"}}, "COMPLETED", map[string]string{"paymentRef": "bank-1"}},
		"a cancel after the failure": {[]step{{failure(amount), failed}, {cancel, "409"}}, "FAILED", map[string]string{"paymentRef": "bank-1"}},
		"money after the cancel": {[]step{
			{cancel, "200"},
			{paid(amount), `{"status":"CANCELLED","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), `{"status":"CANCELLED","applied":false,"action":"REFUND_REQUIRED"}`},
			{cancel, "200"},
		}, "CANCELLED", nil},
		"a failure after the cancel": {[]step{
			{cancel, "200"},
			{failure(amount), `{"status":"CANCELLED","applied":false}`},
			{failure(amount), `{"status":"CANCELLED","applied":false}`},
		}, "CANCELLED", nil},
		"money after the payment": {[]step{
			{paid(amount), completed},
			{other, `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), completed},
			{other, `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "COMPLETED", map[string]string{"paymentRef": "bank-1"}},
		"money after the failure, by another attempt": {[]step{
			{failure(amount), failed},
			{other, `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "FAILED", map[string]string{"paymentRef": "bank-1"}},
		"money after the failure, by the same attempt": {[]step{
			{failure(amount), failed},
			{paid(amount), `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "FAILED", map[string]string{"paymentRef": "bank-1"}},
		"too little, then another with the amount": {[]step{
			{paid(amount - 1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount - 1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{other, `{"status":"COMPLETED","applied":true}`},
			{paid(amount - 1), `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "COMPLETED", map[string]string{"paymentRef": "bank-2"}},
		"another currency, then without one": {[]step{
			{inCurrency("USD"), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{inCurrency("USD"), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), "409"},
			{other, `{"status":"COMPLETED","applied":true}`},
			{inCurrency("USD"), `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "COMPLETED", map[string]string{"paymentRef": "bank-2"}},
		"the session's currency, then without it": {[]step{
			{inCurrency("EUR"), completed},
			{paid(amount), completed},
			{inCurrency("USD"), "409"},
		}, "COMPLETED", map[string]string{"paymentRef": "bank-1"}},
		"too much": {[]step{
			{paid(amount + 1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "PENDING", nil},
		"too much, then the amount under the same name": {[]step{
			{paid(amount + 1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), "409"},
		}, "PENDING", nil},
		"a failure of another amount": {[]step{
			{failure(amount + 1), `{"status":"PENDING","applied":false}`},
			{paid(amount), completed},
		}, "COMPLETED", map[string]string{"paymentRef": "bank-1"}},
		"paid, then failed under the same name":     {[]step{{paid(amount), completed}, {failure(amount), "409"}}, "COMPLETED", map[string]string{"paymentRef": "bank-1"}},
		"paid, then another amount under that name": {[]step{{paid(amount), completed}, {paid(amount + 1), "409"}}, "COMPLETED", map[string]string{"paymentRef": "bank-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := f.create()
			var endedAt any
			for i, step := range test.steps {
				if step.report == cancel {
					if err := f.cancel(id); (err != nil) != (step.want == "409") {
						t.Fatalf("step %d: the cancel gets %v, want %s", i+1, err, step.want)
					}
					endedAt = float64(f.session(id).EndedAt.UnixMilli())
					continue
				}
				got := replicas[i%2].settle(id, bank, step.report)
				step.check(t, i+1, got)
				if got.Status == http.StatusOK && endedAt != nil && got.Body["endedAt"] != endedAt {
					t.Errorf("step %d: the session has ended again: %s", i+1, got.Raw)
				}
				if got.Status == http.StatusOK {
					endedAt = got.Body["endedAt"]
				}
			}
			sess := f.session(id)
			if endedAt != nil && float64(sess.EndedAt.UnixMilli()) != endedAt || endedAt == nil && !sess.EndedAt.IsZero() {
				t.Errorf("endedAt is %v for the rail and %v for the merchant", endedAt, sess.EndedAt)
			}
			if _, seen, err := f.PublicSession(t.Context(), storetest.Payer(), sess.ID); err != nil || seen.Status != test.status {
				t.Errorf("the payer sees %s, want %s: %v", seen.Status, test.status, err)
			}
			if sess.Status != test.status || sess.PaymentRef != test.shown["paymentRef"] || sess.Reason != test.shown["reason"] {
				t.Errorf("the merchant sees %+v, want %s %v", sess, test.status, test.shown)
			}
		})
	}
}

func TestSettle_NotFound(t *testing.T) {
	f := newFixture(t)
	for _, id := range []string{
		"ps_aaaaaaaaaaaa000000000000000000", "ps_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "ps_000000000000000000000000000000", "x", "%20", "%00", "*",
		"ps_aaaaaaaaaaaa000000000000000000%2Fx", "%7Bb00m%7D:session:ps_aaaaaaaaaaaa000000000000000000",
	} {
		f.settle(id, bank, paid(1)).WantError(t, http.StatusNotFound, "session not found")
	}
}

func TestSettle_Metrics(t *testing.T) {
	f := newFixture(t)
	id := f.create()
	f.settle(id, bank, paid(1)).Want(t, http.StatusOK)
	f.settle(id, bank, paid(1)).Want(t, http.StatusOK)
	f.settle(id, bank, paid(2)).Want(t, http.StatusConflict)
	f.settle(id, bank, report("bank-2", "FAILED", 1)).Want(t, http.StatusOK)
	f.settle(id, bank, report("bank-3", "FAILED", 1250)).Want(t, http.StatusOK)
	f.settle(id, bank, report("bank-3", "COMPLETED", 1250)).Want(t, http.StatusOK)
	f.settle(f.unknownID(), bank, paid(1)).Want(t, http.StatusNotFound)
	f.settle(id, bank, `{}`).Want(t, http.StatusBadRequest)
	f.settle(f.createTest(), bank, paid(1250)).WantError(t, http.StatusConflict, "session is of test mode, which no rail settles; refund the payment")
	for labels, want := range map[string]string{
		`outcome="COMPLETED",result="refund_required"`: "2",
		`outcome="COMPLETED",result="repeated"`:        "1",
		`outcome="COMPLETED",result="conflict"`:        "1",
		`outcome="COMPLETED",result="unknown_session"`: "1",
		`outcome="COMPLETED",result="test_session"`:    "1",
		`outcome="FAILED",result="not_applied"`:        "1",
		`outcome="FAILED",result="applied"`:            "1",
	} {
		if got := f.Metric("merchant_operator_settlements_total{" + labels + "}"); got != want {
			t.Errorf("%s: %q, want %s", labels, got, want)
		}
	}
}

// References are each rail's own: the same one of another rail is another payment, and its money goes back.
func TestSettle_TwoRailsOneReference(t *testing.T) {
	f := newFixture(t)
	id := f.create()
	for i, test := range []struct {
		account string
		step    step
	}{
		{card, step{paid(1), refundPending}},
		{bank, step{paid(1250), completed}},
		{card, step{paid(1250), "409"}},
		{bank, step{paid(1250), completed}},
		{card, step{report("bank-2", "COMPLETED", 1250), refundPaid}},
		{bank, step{report("bank-2", "COMPLETED", 1250), refundPaid}},
	} {
		test.step.check(t, i, f.settle(id, test.account, test.step.report))
	}
	own := func(account string) string {
		var all []string
		for _, one := range f.read(id, account)["payments"].([]any) {
			payment := one.(map[string]any)
			if payment["own"] == true {
				all = append(all, fmt.Sprint(payment["paymentRef"], " ", payment["amountCents"]))
			}
		}
		slices.Sort(all)
		return strings.Join(all, ", ")
	}
	if got, want := own(bank), "bank-1 1250, bank-2 1250"; got != want {
		t.Errorf("the bank reads as its own %s, want %s", got, want)
	}
	if got, want := own(card), "bank-1 1, bank-2 1250"; got != want {
		t.Errorf("the other rail reads as its own %s, want %s", got, want)
	}
	if sess := f.session(id); sess.PaymentRef != "bank-1" || sess.PaymentRail != session.NewRail(bank) {
		t.Errorf("settled by %q of %v", sess.PaymentRef, sess.PaymentRail)
	}
	var events []string
	for _, entry := range f.events() {
		payment := entry.Event.Session.Payment
		if payment == nil {
			payment = new(entry.Event.Session.Session.Payment())
		}
		events = append(events, fmt.Sprint(entry.Event.Kind, " ", payment.Ref))
	}
	want := []string{"session.payment_mismatch bank-1", "session.completed bank-1", "session.late_payment bank-2", "session.late_payment bank-2"}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A rail reports payments for a merchant that was deleted: nobody could hear of them. One replica has not heard of the deletion yet.
func TestSettle_MerchantDeleted(t *testing.T) {
	running := newFixture(t)
	late, restarted := running.other(), newReplica(t, running.redis)
	before, after, failing, lagging, living := running.create(), running.create(), running.create(), running.create(), running.createOf(running.Merchant("books"))
	step{paid(1250), completed}.check(t, 0, late.settle(before, bank, paid(1250)))
	running.WithdrawMerchant(running.acme)
	restarted.PublishMerchant(running.acme)
	restarted.WithdrawMerchant(running.acme)
	for i, test := range []struct {
		on   *fixture
		id   string
		step step
	}{
		{running, before, step{paid(1250), completed}},
		{restarted, before, step{paid(1250), completed}},
		{running, before, step{report("bank-2", "COMPLETED", 1250), refundPaid}},
		{running, after, step{paid(1250), refundPending}},
		{restarted, after, step{paid(1250), refundPending}},
		{late, after, step{paid(1250), refundPending}},
		{restarted, after, step{report("bank-2", "COMPLETED", 1250), refundPending}},
		{running, failing, step{failure(1250), failed}},
		{restarted, failing, step{failure(1250), failed}},
		{restarted, failing, step{paid(1250), refundFailed}},
		{running, failing, step{paid(1250), refundFailed}},
		{late, lagging, step{paid(1250), completed}}, // as if it had come before the deletion
		{running, lagging, step{paid(1250), completed}},
		{running, living, step{paid(1250), completed}},
	} {
		test.step.check(t, i+1, test.on.settle(test.id, bank, test.step.report))
	}
	for name, test := range map[string]struct {
		on   *fixture
		want string
	}{"running": {running, "2"}, "restarted": {restarted, "2"}, "late": {late, "0"}} {
		if got := test.on.Metric(`merchant_operator_settlements_total{outcome="COMPLETED",result="merchant_deleted"}`); got != test.want {
			t.Errorf("the replica %s has counted %s payments for deleted merchants, want %s", name, got, test.want)
		}
	}
	logged := running.Logged.String()
	if !strings.Contains(logged, `"merchantID":"`+running.acme.MerchantID+`","paymentRef":"bank-2"`) || strings.Contains(logged, after) {
		t.Errorf("the log does not name merchant and payment, or has the session's id:\n%s", logged)
	}
}

// Money for a merchant that is there is never refused, whatever this replica can read of it.
func TestSettle_MerchantNotDeleted(t *testing.T) {
	rewritten := func(change func(string) string) func(*fixture, published.MerchantRecord) {
		return func(f *fixture, merchant published.MerchantRecord) {
			configMap, err := published.EncodeMerchant("credentials", merchant)
			storetest.Must(f.t, err)
			configMap.Data["merchant.json"] = change(configMap.Data["merchant.json"])
			_ = f.Directory.Informer("merchant").Update(configMap) // it may be unreadable
		}
	}
	for name, change := range map[string]func(*fixture, published.MerchantRecord){
		"Suspended":                       inState(v1alpha1.MerchantSuspended),
		"Closed":                          inState(v1alpha1.MerchantClosed),
		"its published object is lost":    unpublished,
		"its published object is damaged": rewritten(func(string) string { return "{}" }),
		"its published object is of the next version": rewritten(
			strings.NewReplacer(`"version":1`, `"version":2`, `"state":"Active"`, `"state":"Dormant"`).Replace),
	} {
		t.Run(name, func(t *testing.T) {
			running := newFixture(t)
			restarted := newReplica(t, running.redis)
			for i, f := range []*fixture{running, restarted} {
				id := running.create()
				change(f, running.acme)
				if status := running.session(id).Status; status != session.Pending {
					t.Errorf("replica %d: the session is %s", i, status)
				}
				step{paid(1250), completed}.check(t, i+1, f.settle(id, bank, paid(1250)))
			}
		})
	}
}

const (
	currencyRule       = "currency must be an ISO 4217 code, such as EUR"
	paymentRefRule     = "paymentRef must be a string of 1 to 128 visible ASCII characters"
	outcomeRule        = "outcome must be COMPLETED or FAILED"
	paidAtRule         = "paidAt must be a time from 2020 to 9999, as Unix milliseconds (not seconds) or an RFC 3339 string"
	reportedAmountRule = "amountCents must be an integer from 1 to 1000000000000000"
	reasonRule         = "reason must be a string of at most 255 characters without control characters"
)

// reported returns a report that is good but for what is added to it.
func reported(field string) string {
	return `{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1,` + field + `}`
}

var badReports = map[string]struct{ body, message string }{
	"nothing":             {``, roomtest.NotAnObject},
	"null":                {`null`, roomtest.NotAnObject},
	"an array":            {`[` + reported(`"x":1`) + `]`, roomtest.NotAnObject},
	"not closed":          {`{"paymentRef":"bank-1"`, roomtest.NotJSON},
	"two objects":         {`{}{}`, roomtest.NotJSON},
	"a form":              {`paymentRef=bank-1&outcome=COMPLETED&amountCents=1`, roomtest.NotJSON},
	"not UTF-8":           {reported("\"reason\":\"\xff\""), roomtest.NotUTF8},
	"a lone surrogate":    {reported(`"reason":"\ud83d"`), roomtest.LoneSurrogate},
	"16 KiB and more":     {reported(`"x":"` + strings.Repeat("x", 16<<10) + `"`), roomtest.BodyTooLarge},
	"200 KB":              {reported(`"x":"` + strings.Repeat("x", 200_000) + `"`), roomtest.BodyTooLarge},
	"the reference twice": {reported(`"paymentRef":"bank-1"`), `duplicate field "paymentRef"`},
	"the outcome twice":   {reported(`"outcome":"FAILED"`), `duplicate field "outcome"`},
	"the amount twice":    {reported(`"amountCents":2`), `duplicate field "amountCents"`},

	"no reference":                          {`{"outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference in another case":             {`{"paymentref":"bank-1","outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference empty":                       {`{"paymentRef":"","outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference null":                        {`{"paymentRef":null,"outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference a number":                    {`{"paymentRef":1,"outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference an array":                    {`{"paymentRef":["bank-1"],"outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference with a blank":                {report("bank 1", "COMPLETED", 1), paymentRefRule},
	"reference with a line break":           {`{"paymentRef":"bank\n1","outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference with NUL":                    {`{"paymentRef":"bank\u00001","outcome":"COMPLETED","amountCents":1}`, paymentRefRule},
	"reference with an umlaut":              {report("bänk", "COMPLETED", 1), paymentRefRule},
	"reference of 129 characters":           {report(strings.Repeat("r", 129), "COMPLETED", 1), paymentRefRule},
	"no outcome":                            {`{"paymentRef":"bank-1","amountCents":1}`, outcomeRule},
	"outcome empty":                         {report("bank-1", "", 1), outcomeRule},
	"outcome null":                          {`{"paymentRef":"bank-1","outcome":null,"amountCents":1}`, outcomeRule},
	"outcome true":                          {`{"paymentRef":"bank-1","outcome":true,"amountCents":1}`, outcomeRule},
	"outcome in lower case":                 {report("bank-1", "completed", 1), outcomeRule},
	"outcome with a blank":                  {report("bank-1", "COMPLETED ", 1), outcomeRule},
	"outcome PENDING":                       {report("bank-1", "PENDING", 1), outcomeRule},
	"outcome EXPIRED":                       {report("bank-1", "EXPIRED", 1), outcomeRule},
	"outcome CANCELLED":                     {report("bank-1", "CANCELLED", 1), outcomeRule},
	"no amount":                             {`{"paymentRef":"bank-1","outcome":"COMPLETED"}`, reportedAmountRule},
	"amount null":                           {`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":null}`, reportedAmountRule},
	"amount a string":                       {`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":"1"}`, reportedAmountRule},
	"amount a fraction":                     {`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":0.5}`, reportedAmountRule},
	"amount zero":                           {paid(0), reportedAmountRule},
	"amount negative":                       {paid(-1), reportedAmountRule},
	"amount over the maximum":               {paid(1_000_000_000_000_001), reportedAmountRule},
	"amount of a huge exponent":             {`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1e999999999}`, reportedAmountRule},
	"currency empty":                        {reported(`"currency":""`), currencyRule},
	"currency a number":                     {reported(`"currency":978`), currencyRule},
	"currency in small letters":             {reported(`"currency":"eur"`), currencyRule},
	"currency a word":                       {reported(`"currency":"EURO"`), currencyRule},
	"time false":                            {reported(`"paidAt":false`), paidAtRule},
	"time an object":                        {reported(`"paidAt":{}`), paidAtRule},
	"time empty":                            {reported(`"paidAt":""`), paidAtRule},
	"time zero":                             {reported(`"paidAt":0`), paidAtRule},
	"time negative":                         {reported(`"paidAt":-1`), paidAtRule},
	"time of the year 1, in numbers":        {reported(`"paidAt":-62135596800000`), paidAtRule},
	"time of the year 1":                    {reported(`"paidAt":"0001-01-01T00:00:00Z"`), paidAtRule},
	"time of 2019":                          {reported(`"paidAt":"2019-12-31T23:59:59Z"`), paidAtRule},
	"time in seconds":                       {reported(`"paidAt":1795246300`), paidAtRule},
	"time of the year 10000":                {reported(`"paidAt":253402300800000`), paidAtRule},
	"time of the year 10000, by its offset": {reported(`"paidAt":"9999-12-31T23:59:59-01:00"`), paidAtRule},
	"time over 18 digits":                   {reported(`"paidAt":1795246300000000000`), paidAtRule},
	"time a fraction":                       {reported(`"paidAt":1795246300000.5`), paidAtRule},
	"time a number in quotes":               {reported(`"paidAt":"1795246300000"`), paidAtRule},
	"time without an offset":                {reported(`"paidAt":"2026-11-21T10:00:00"`), paidAtRule},
	"time without a time":                   {reported(`"paidAt":"2026-11-21"`), paidAtRule},
	"time with a blank":                     {reported(`"paidAt":"2026-11-21 10:00:00Z"`), paidAtRule},
	"time with a comma":                     {reported(`"paidAt":"2026-11-21T10:00:00,5Z"`), paidAtRule},
	"time with one digit":                   {reported(`"paidAt":"2026-11-21T9:00:00Z"`), paidAtRule},
	"time of no such day":                   {reported(`"paidAt":"2026-02-30T10:00:00Z"`), paidAtRule},
	"time of no such hour":                  {reported(`"paidAt":"2026-11-21T24:00:00Z"`), paidAtRule},
	"time of no such offset":                {reported(`"paidAt":"2026-11-21T10:00:00+24:00"`), paidAtRule},
	"reason a number":                       {reported(`"reason":51`), reasonRule},
	"reason an object":                      {reported(`"reason":{"code":51}`), reasonRule},
	"reason too long":                       {reported(`"reason":"` + strings.Repeat("ä", 256) + `"`), reasonRule},
	"reason with a line break":              {reported(`"reason":"a\nb"`), reasonRule},
	"reason with NUL":                       {reported(`"reason":"a\u0000b"`), reasonRule},
}

func TestSettle_BadBodies(t *testing.T) {
	f := newFixture(t)
	id := f.createOne()
	for name, test := range badReports {
		t.Run(name, func(t *testing.T) {
			f.settle(id, bank, test.body).WantError(t, http.StatusBadRequest, test.message)
		})
	}
	if status := f.session(id).Status; status != session.Pending {
		t.Errorf("a refused report left the session %s", status)
	}
}

func TestSettle_GoodBodies(t *testing.T) {
	f := newFixture(t)
	for name, body := range map[string]string{
		"the least":                    paid(1),
		"the longest reference":        report(strings.Repeat("~", 128), "COMPLETED", 1),
		"a reference with punctuation": `{"paymentRef":"!{}:*|%=\"\\/","outcome":"COMPLETED","amountCents":1}`,
		"an amount as 1.0":             `{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1.0}`,
		"a time in milliseconds":       reported(`"paidAt":1795246300000`),
		"a time as 1.8e12":             reported(`"paidAt":1.8e12`),
		"a time of RFC 3339":           reported(`"paidAt":"2026-11-21T10:00:00Z"`),
		"a time with an offset":        reported(`"paidAt":"2026-11-21T10:00:00.123456789+05:30"`),
		"a time in the future":         reported(`"paidAt":"2999-01-01T00:00:00Z"`),
		"null is absence":              reported(`"paidAt":null,"reason":null,"currency":null`),
		"the session's currency":       reported(`"currency":"EUR"`),
		"an empty reason is none":      reported(`"reason":""`),
		"the longest reason":           reported(`"reason":"` + strings.Repeat("ä", 255) + `"`),
		"unknown fields":               reported(`"iban":"EUR","items":[{"a":1,"a":2}],"":null`),
		"blanks around":                "\r\n " + paid(1) + " \n",
	} {
		t.Run(name, func(t *testing.T) {
			id := f.createOne()
			for range 2 {
				got := f.settle(id, bank, body).Want(t, http.StatusOK)
				if got.Body["applied"] != true || got.Text("status") != "COMPLETED" {
					t.Errorf("answer %s", got.Raw)
				}
			}
			if reason := f.session(id).Reason; reason != "" {
				t.Errorf("a completed session with a reason for its failure: %s", reason)
			}
		})
	}
	f.Call(http.MethodPost, "/internal/v1/sessions/"+f.createOne()+"/settlement", bank, paid(1), "Content-Type", "text/plain").Want(t, http.StatusOK)
}

func TestSettle_IgnoredFields(t *testing.T) {
	f := newFixture(t)
	got := f.settle(f.createOne(), bank, reported(`"x":1`)).Want(t, http.StatusOK)
	if names := got.Header.Get("Ignored-Fields"); names != "x" {
		t.Errorf("Ignored-Fields %q, want x", names)
	}
}

// Whichever request comes first finds that a session has expired, and be it the payment itself.
func TestSettle_AfterExpiry(t *testing.T) {
	f := newFixture(t)
	other := f.other()
	create := func() (id string) {
		return f.createOf(f.acme, func(s *store.NewSession) { s.Charge.AmountCents, s.Lifetime = 1, time.Second })
	}
	unread, unreadFailed, read := create(), create(), create()
	await.Until(t, 30*time.Second, "the youngest is EXPIRED", func() bool { return f.session(read).Status == session.Expired })
	for _, id := range []string{unread, read} {
		for _, f := range []*fixture{f, other} {
			got := f.settle(id, bank, paid(1)).Want(t, http.StatusOK)
			want := map[string]any{
				"sessionId": id, "status": "EXPIRED", "applied": false, "action": "REFUND_REQUIRED", "endedAt": float64(f.session(id).ExpiresAt.UnixMilli()),
			}
			if diff := cmp.Diff(want, got.Body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		}
	}
	got := f.settle(unreadFailed, bank, failure(1)).Want(t, http.StatusOK)
	if got.Text("status") != "EXPIRED" || got.Body["applied"] != false || got.Body["action"] != nil {
		t.Errorf("a failure after the expiry: %s", got.Raw)
	}
}

// A report counts even if the rail disconnects before the response.
func TestSettle_DisconnectedRail(t *testing.T) {
	f := newFixture(t)
	id := f.create()
	request := f.NewRequest(http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", bank, paid(1250))
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	f.Do(request.WithContext(ctx)).Want(t, http.StatusOK)
	if status := f.session(id).Status; status != session.Completed {
		t.Errorf("the session is %s", status)
	}
}
