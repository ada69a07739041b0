package apiserver_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
)

// step is one request about a session, and its expected response.
type step struct {
	report string // of a rail; empty: the merchant cancels
	want   string // the answer, but for sessionId and endedAt; or the status code of an error
}

const (
	cancel    = ""
	completed = `{"status":"COMPLETED","applied":true}`
	failed    = `{"status":"FAILED","applied":true}`
)

// check fails the test unless the answer is as the step wants it.
func (s step) check(t *testing.T, number int, got result) {
	t.Helper()
	if len(s.want) == len("409") {
		if strconv.Itoa(got.status) != s.want {
			t.Fatalf("step %d: status %d, want %s: %s", number, got.status, s.want, got.raw)
		}
		return
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(s.want), &want); err != nil {
		t.Fatal(err)
	}
	shown := maps.Clone(got.want(t, http.StatusOK).body)
	delete(shown, "sessionId")
	delete(shown, "endedAt")
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Fatalf("step %d (-want +got):\n%s", number, diff)
	}
}

func inCurrency(currency string) string {
	return fmt.Sprintf(`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1250,"currency":%q}`, currency)
}

// What ends a session, and what does not. The steps go to two replicas in turn.
func TestSettlement(t *testing.T) {
	const amount = 1250
	other := report("bank-2", "COMPLETED", amount)
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	replicas := []*replica{f.start(), f.start()}
	for name, test := range map[string]struct {
		steps  []step
		status string // in the end
		shown  map[string]any
	}{
		"paid":         {[]step{{paid(amount), completed}}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"failed":       {[]step{{failure(amount), failed}}, "FAILED", map[string]any{"paymentRef": "bank-1"}},
		"paid again":   {[]step{{paid(amount), completed}, {paid(amount), completed}, {paid(amount), completed}}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"failed again": {[]step{{failure(amount), failed}, {failure(amount), failed}}, "FAILED", map[string]any{"paymentRef": "bank-1"}},
		"failed, with a reason": {[]step{
			{`{"paymentRef":"bank-1","outcome":"FAILED","amountCents":1250,"reason":"insufficient funds","paidAt":"2026-11-21T10:00:00Z"}`, failed},
		}, "FAILED", map[string]any{"paymentRef": "bank-1", "reason": "insufficient funds"}},
		"cancelled":                  {[]step{{cancel, "200"}, {cancel, "200"}}, "CANCELLED", nil},
		"a cancel after the payment": {[]step{{paid(amount), completed}, {cancel, "409"}}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"a cancel after the failure": {[]step{{failure(amount), failed}, {cancel, "409"}}, "FAILED", map[string]any{"paymentRef": "bank-1"}},
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
		}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"money after the failure, by another attempt": {[]step{
			{failure(amount), failed},
			{other, `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "FAILED", map[string]any{"paymentRef": "bank-1"}},
		"money after the failure, by the same attempt": {[]step{
			{failure(amount), failed},
			{paid(amount), `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "FAILED", map[string]any{"paymentRef": "bank-1"}},
		"too little, then another with the amount": {[]step{
			{paid(amount - 1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount - 1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{other, `{"status":"COMPLETED","applied":true}`},
			{paid(amount - 1), `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "COMPLETED", map[string]any{"paymentRef": "bank-2"}},
		"another currency, then without one": {[]step{
			{inCurrency("USD"), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{inCurrency("USD"), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`},
			{paid(amount), "409"},
			{other, `{"status":"COMPLETED","applied":true}`},
			{inCurrency("USD"), `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`},
		}, "COMPLETED", map[string]any{"paymentRef": "bank-2"}},
		"the session's currency, then without it": {[]step{
			{inCurrency("EUR"), completed},
			{paid(amount), completed},
			{inCurrency("USD"), "409"},
		}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
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
		}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"paid, then failed under the same name":     {[]step{{paid(amount), completed}, {failure(amount), "409"}}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
		"paid, then another amount under that name": {[]step{{paid(amount), completed}, {paid(amount + 1), "409"}}, "COMPLETED", map[string]any{"paymentRef": "bank-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := replicas[0].call(http.MethodPost, sessions, key, `{"amountCents": 1250}`).want(t, http.StatusCreated).text("sessionId")
			var endedAt any
			for i, step := range test.steps {
				r := replicas[i%2]
				var got result
				if step.report == cancel {
					got = r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "")
				} else {
					got = r.report(id, rail, step.report)
				}
				step.check(t, i+1, got)
				if got.status == http.StatusOK && endedAt != nil && got.body["endedAt"] != endedAt {
					t.Errorf("step %d: the session has ended again: %s", i+1, got.raw)
				}
				if got.status == http.StatusOK {
					endedAt = got.body["endedAt"]
				}
			}
			for _, r := range replicas {
				got := r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK)
				if got.body["endedAt"] != endedAt {
					t.Errorf("endedAt is %v for the rail and %v for the merchant", endedAt, got.body["endedAt"])
				}
				if got.text("status") != test.status || got.body["paymentRef"] != test.shown["paymentRef"] || got.body["reason"] != test.shown["reason"] {
					t.Errorf("the merchant sees %s, want %s %v", got.raw, test.status, test.shown)
				}
				if status := r.call(http.MethodGet, public+"/"+id, "", "").text("status"); status != test.status {
					t.Errorf("the payer sees %s, want %s", status, test.status)
				}
			}
		})
	}
}

func TestSettlement_NotFound(t *testing.T) {
	f := newFixture(t)
	rail := f.rail("bank")
	r := f.start()
	for _, id := range []string{
		"ps_aaaaaaaaaaaa000000000000000000", "ps_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "ps_000000000000000000000000000000", "x", "%20", "%00", "*",
		"ps_aaaaaaaaaaaa000000000000000000%2Fx", "%7Bb00m%7D:session:ps_aaaaaaaaaaaa000000000000000000",
	} {
		r.report(id, rail, paid(1)).wantError(t, http.StatusNotFound, "session not found")
	}
}

func TestSettlement_Metrics(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 2}`).text("sessionId")
	r.report(id, rail, paid(1)).want(t, http.StatusOK)
	r.report(id, rail, paid(1)).want(t, http.StatusOK)
	r.report(id, rail, paid(2)).want(t, http.StatusConflict)
	r.report(id, rail, report("bank-2", "FAILED", 1)).want(t, http.StatusOK)
	r.report(id, rail, report("bank-3", "FAILED", 2)).want(t, http.StatusOK)
	r.report(id, rail, report("bank-3", "COMPLETED", 2)).want(t, http.StatusOK)
	r.report("ps_aaaaaaaaaaaa000000000000000000", rail, paid(1)).want(t, http.StatusNotFound)
	r.report(id, rail, `{}`).want(t, http.StatusBadRequest)
	r.report(id, "", paid(1)).want(t, http.StatusUnauthorized)
	for labels, want := range map[string]string{
		`outcome="COMPLETED",result="refund_required"`: "2",
		`outcome="COMPLETED",result="repeated"`:        "1",
		`outcome="COMPLETED",result="conflict"`:        "1",
		`outcome="COMPLETED",result="unknown_session"`: "1",
		`outcome="FAILED",result="not_applied"`:        "1",
		`outcome="FAILED",result="applied"`:            "1",
	} {
		if got := r.metric("merchant_operator_settlements_total{" + labels + "}"); got != want {
			t.Errorf("%s: %q, want %s", labels, got, want)
		}
	}
	if got := r.metric(`merchant_operator_http_unauthorized_total{reason="internal_token"}`); got != "1" {
		t.Errorf("%q reports were refused for their token, want 1", got)
	}
}

const (
	refundPending = `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`
	refundFailed  = `{"status":"FAILED","applied":false,"action":"REFUND_REQUIRED"}`
)

// withdraw does what the operator does when the Merchant is deleted.
func (f *fixture) withdraw(merchant published.MerchantRecord) {
	f.t.Helper()
	merchant.State = v1alpha1.MerchantClosed
	f.changeMerchant(merchant)
	f.createTombstone(published.Tombstone{
		Kind: published.TombstoneMerchant, ID: merchant.MerchantID,
		Source: published.Source{Namespace: merchant.Namespace, Name: merchant.Name, UID: types.UID(merchant.MerchantID)},
	})
	f.unpublish(merchant)
}

func (f *fixture) unpublish(merchant published.MerchantRecord) {
	f.t.Helper()
	name := published.MerchantName(merchant.MerchantID)
	if err := kube.CoreV1().ConfigMaps(f.namespace).Delete(f.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

// References are each rail's own: the same one of another rail is another payment, and its money goes back.
func TestSettlement_TwoRailsOneReference(t *testing.T) {
	f := newFixture(t)
	key, bank, card := f.key("till", f.merchant("acme")), f.rail("bank"), f.rail("card")
	r := f.start()
	id := r.create(key)
	const refund = `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`
	for i, test := range []struct {
		rail string
		step step
	}{
		{card, step{paid(1), `{"status":"PENDING","applied":false,"action":"REFUND_REQUIRED"}`}},
		{bank, step{paid(1250), completed}},
		{card, step{paid(1250), "409"}},
		{bank, step{paid(1250), completed}},
		{card, step{report("bank-2", "COMPLETED", 1250), refund}},
		{bank, step{report("bank-2", "COMPLETED", 1250), refund}},
	} {
		test.step.check(t, i, r.report(id, test.rail, test.step.report))
	}
	own := func(rail string) string {
		var all []string
		for _, one := range r.railGet(id, rail).want(t, http.StatusOK).body["payments"].([]any) {
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
	if got := r.call(http.MethodGet, sessions+"/"+id, key, "").text("paymentRef"); got != "bank-1" {
		t.Errorf("the merchant reads paymentRef %q", got)
	}
	var events []string
	for _, item := range r.call(http.MethodGet, "/api/v1/events", key, "").want(t, http.StatusOK).body["items"].([]any) {
		event := item.(map[string]any)["event"].(map[string]any)
		events = append(events, fmt.Sprint(event["type"], " ", event["data"].(map[string]any)["paymentRef"]))
	}
	want := []string{"session.payment_mismatch bank-1", "session.completed bank-1", "session.late_payment bank-2", "session.late_payment bank-2"}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A rail reports payments for a merchant that was deleted: nobody could hear of them.
func TestSettlement_MerchantDeleted(t *testing.T) {
	f := newFixture(t)
	acme, books := f.merchant("acme"), f.merchant("books")
	key, ofBooks, rail := f.key("till", acme), f.key("books-till", books), f.rail("bank")
	running, late := f.start(), f.start(func(o *apiserver.Options) { o.InternalCacheTTL = time.Hour })
	ids := running.charge(key, 5)
	before, after, failing, lagging, probe := ids[0], ids[1], ids[2], ids[3], ids[4]
	living := running.create(ofBooks)
	step{paid(1250), completed}.check(t, 0, late.report(before, rail, paid(1250)))

	late.proxy.Cut()
	f.withdraw(acme)
	running.eventuallyStatus(key, http.StatusUnauthorized)
	eventually(t, "the replica knows that the merchant was deleted", func() bool { // another amount, so that it ends nothing before that
		running.report(probe, rail, report("bank-"+time.Now().Format(time.RFC3339Nano), "COMPLETED", 1)).want(t, http.StatusOK)
		return running.metric(`merchant_operator_settlements_total{outcome="COMPLETED",result="merchant_deleted"}`) != "0"
	})
	restarted := f.start()
	for i, test := range []struct {
		on   *replica
		id   string
		step step
	}{
		{running, before, step{paid(1250), completed}},
		{restarted, before, step{paid(1250), completed}},
		{running, before, step{report("bank-2", "COMPLETED", 1250), `{"status":"COMPLETED","applied":false,"action":"REFUND_REQUIRED"}`}},
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
		test.step.check(t, i+1, test.on.report(test.id, rail, test.step.report))
	}
	for r, want := range map[*replica]string{running: "3", restarted: "2", late: "0"} {
		if got := r.metric(`merchant_operator_settlements_total{outcome="COMPLETED",result="merchant_deleted"}`); got != want {
			t.Errorf("%s has counted %s payments for deleted merchants, want %s", r.name, got, want)
		}
	}
	logged := f.log.String()
	if !strings.Contains(logged, `"merchantID":"`+acme.MerchantID+`","paymentRef":"bank-2"`) || strings.Contains(logged, after) {
		t.Errorf("the log does not name merchant and payment, or has the session's id:\n%s", logged)
	}
}

// Money for a merchant that is there is never refused, whatever this replica can read of it.
func TestSettlement_MerchantNotDeleted(t *testing.T) {
	for name, change := range map[string]func(f *fixture, merchant published.MerchantRecord){
		"Suspended": func(f *fixture, merchant published.MerchantRecord) {
			merchant.State = v1alpha1.MerchantSuspended
			f.changeMerchant(merchant)
		},
		"Closed": func(f *fixture, merchant published.MerchantRecord) {
			merchant.State = v1alpha1.MerchantClosed
			f.changeMerchant(merchant)
		},
		"its published object is lost": (*fixture).unpublish,
		"its published object is damaged": func(f *fixture, merchant published.MerchantRecord) {
			f.rewriteMerchant(merchant, func(string) string { return "{}" })
		},
		"its published object is of the next version": func(f *fixture, merchant published.MerchantRecord) {
			f.rewriteMerchant(merchant, strings.NewReplacer(`"version":1`, `"version":2`, `"state":"Active"`, `"state":"Dormant"`).Replace)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			acme := f.merchant("acme")
			key, rail := f.key("till", acme), f.rail("bank")
			running := f.start()
			ids := running.charge(key, 2)
			change(f, acme)
			eventually(t, "the replica knows", func() bool { return running.call(http.MethodGet, me, key, "").status != http.StatusOK })
			for i, r := range []*replica{running, f.start()} {
				if status := r.call(http.MethodGet, public+"/"+ids[i], "", "").text("status"); status != "PENDING" {
					t.Errorf("%s: the payer sees %s", r.name, status)
				}
				step{paid(1250), completed}.check(t, i+1, r.report(ids[i], rail, paid(1250)))
			}
		})
	}
}

// rewriteMerchant changes the text of the published object.
func (f *fixture) rewriteMerchant(merchant published.MerchantRecord, change func(string) string) {
	f.t.Helper()
	configMap := f.configMap(merchant)
	configMap.Data["merchant.json"] = change(configMap.Data["merchant.json"])
	if _, err := kube.CoreV1().ConfigMaps(f.namespace).Update(f.t.Context(), configMap, metav1.UpdateOptions{}); err != nil {
		f.t.Fatal(err)
	}
}

const (
	currencyRule       = "currency must be an ISO 4217 code, such as EUR"
	paymentRefRule     = "paymentRef must be a string of 1 to 128 visible ASCII characters"
	outcomeRule        = "outcome must be COMPLETED or FAILED"
	paidAtRule         = "paidAt must be a time from 1970 to 9999, as Unix milliseconds or an RFC 3339 string"
	reportedAmountRule = "amountCents must be an integer from 1 to 1000000000000000"
	reasonRule         = "reason must be a string of at most 255 characters without control characters"
)

// reported returns a report that is good but for what is added to it.
func reported(field string) string {
	return `{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1,` + field + `}`
}

var badReports = map[string]struct{ body, message string }{
	"nothing":             {``, notAnObject},
	"null":                {`null`, notAnObject},
	"an array":            {`[` + reported(`"x":1`) + `]`, notAnObject},
	"not closed":          {`{"paymentRef":"bank-1"`, notJSON},
	"two objects":         {`{}{}`, notJSON},
	"a form":              {`paymentRef=bank-1&outcome=COMPLETED&amountCents=1`, notJSON},
	"not UTF-8":           {reported("\"reason\":\"\xff\""), notUTF8},
	"a lone surrogate":    {reported(`"reason":"\ud83d"`), loneHalf},
	"16 KiB and more":     {reported(`"x":"` + strings.Repeat("x", 16<<10) + `"`), tooLarge},
	"200 KB":              {reported(`"x":"` + strings.Repeat("x", 200_000) + `"`), tooLarge},
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
	"time of 1969":                          {reported(`"paidAt":"1969-12-31T23:59:59Z"`), paidAtRule},
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

func TestSettlement_BadBodies(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	for name, test := range badReports {
		t.Run(name, func(t *testing.T) {
			r.report(id, rail, test.body).wantError(t, http.StatusBadRequest, test.message)
		})
	}
	if status := r.call(http.MethodGet, sessions+"/"+id, key, "").text("status"); status != "PENDING" {
		t.Errorf("a refused report left the session %s", status)
	}
}

func TestSettlement_GoodBodies(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start()
	for name, body := range map[string]string{
		"the least":                    paid(1),
		"the longest reference":        report(strings.Repeat("~", 128), "COMPLETED", 1),
		"a reference with punctuation": `{"paymentRef":"!{}:*|%=\"\\/","outcome":"COMPLETED","amountCents":1}`,
		"an amount as 1.0":             `{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1.0}`,
		"a time in milliseconds":       reported(`"paidAt":1795246300000`),
		"a time as 1e12":               reported(`"paidAt":1e12`),
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
			id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
			for range 2 {
				got := r.report(id, rail, body).want(t, http.StatusOK)
				if got.body["applied"] != true || got.text("status") != "COMPLETED" {
					t.Errorf("answer %s", got.raw)
				}
			}
			shown := r.call(http.MethodGet, sessions+"/"+id, key, "").want(t, http.StatusOK)
			if shown.body["reason"] != nil {
				t.Errorf("a completed session with a reason for its failure: %s", shown.raw)
			}
		})
	}
	id := r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).text("sessionId")
	r.report(id, rail, paid(1), "Content-Type", "text/plain").want(t, http.StatusOK)
}

// Whichever request comes first finds that a session has ended, and be it the payment itself.
func TestSettlement_AfterExpiry(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme", func(r *published.MerchantRecord) { r.Sessions.LifetimeSeconds = 1 }))
	rail := f.rail("bank")
	r, other := f.start(), f.start()
	create := func() result {
		return r.call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated)
	}
	unread, unreadFailed, unreadCancelled, read := create(), create(), create(), create()
	eventually(t, "the youngest is EXPIRED", func() bool {
		return r.call(http.MethodGet, public+"/"+read.text("sessionId"), "", "").text("status") == "EXPIRED"
	})
	for _, created := range []result{unread, read} {
		for _, r := range []*replica{r, other} {
			got := r.report(created.text("sessionId"), rail, paid(1)).want(t, http.StatusOK)
			want := map[string]any{
				"sessionId": created.body["sessionId"], "status": "EXPIRED", "applied": false, "action": "REFUND_REQUIRED",
				"endedAt": created.body["expiresAt"],
			}
			if diff := cmp.Diff(want, got.body); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		}
	}
	got := r.report(unreadFailed.text("sessionId"), rail, failure(1)).want(t, http.StatusOK)
	if got.text("status") != "EXPIRED" || got.body["applied"] != false || got.body["action"] != nil {
		t.Errorf("a failure after the expiry: %s", got.raw)
	}
	r.call(http.MethodPost, sessions+"/"+unreadCancelled.text("sessionId")+"/cancel", key, "").want(t, http.StatusConflict)
	if status := other.call(http.MethodGet, sessions+"/"+unreadCancelled.text("sessionId"), key, "").text("status"); status != "EXPIRED" {
		t.Errorf("after a cancel that came too late the session is %s", status)
	}
}

// Of all concurrent requests one ends the session, and all get the same result.
func TestSettlement_RaceWithCancel(t *testing.T) {
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	replicas := []*replica{f.start(), f.start()}
	for range 40 {
		id := replicas[0].call(http.MethodPost, sessions, key, `{"amountCents": 1}`).want(t, http.StatusCreated).text("sessionId")
		var (
			racers    sync.WaitGroup
			mu        sync.Mutex
			cancelled []int // statuses of HTTP
			applied   []string
			refunds   int
		)
		for i, r := range []*replica{replicas[0], replicas[1], replicas[0], replicas[1]} {
			racers.Go(func() {
				got := r.call(http.MethodPost, sessions+"/"+id+"/cancel", key, "")
				mu.Lock()
				defer mu.Unlock()
				cancelled = append(cancelled, got.status)
			})
			racers.Go(func() {
				got := r.report(id, rail, report(fmt.Sprintf("bank-%d", i), "COMPLETED", 1))
				mu.Lock()
				defer mu.Unlock()
				if got.body["applied"] == true {
					applied = append(applied, got.text("status"))
				} else if got.text("action") == "REFUND_REQUIRED" {
					refunds++
				}
			})
		}
		racers.Wait()
		status := replicas[1].call(http.MethodGet, sessions+"/"+id, key, "").text("status")
		for _, code := range cancelled {
			if (code == http.StatusOK) != (status == "CANCELLED") || (code == http.StatusConflict) != (status == "COMPLETED") {
				t.Errorf("the session is %s, and the cancels were answered %v", status, cancelled)
			}
		}
		if want := map[string]int{"COMPLETED": 1, "CANCELLED": 0}[status]; len(applied) != want || refunds != 4-want {
			t.Errorf("the session is %s, %v were applied and %d are refunded", status, applied, refunds)
		}
	}
}
