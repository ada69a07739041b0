package sessions_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// listed are the ids of the sessions of a list.
func listed(got roomtest.Result) (ids []string) {
	for _, one := range got.Body["sessions"].([]any) {
		ids = append(ids, one.(map[string]any)["sessionId"].(string))
	}
	return ids
}

func charge(orderRef string) string {
	return fmt.Sprintf(`{"amountCents": 1250, "orderRef": %q}`, orderRef)
}

func byOrder(orderRef string) string { return path + "?orderRef=" + url.QueryEscape(orderRef) }

// A till that lost an answer asks what became of its order.
func TestListOrder(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme")
	key, stranger := f.Key("till", acme), f.Key("stranger", f.Merchant("books"))
	test := f.TestKey("test", acme)
	const order = "table 7 + 8/é&x=1"
	empty := map[string]any{"sessions": []any{}, "more": false}
	if diff := cmp.Diff(empty, f.Call(http.MethodGet, byOrder(order), key, "").Want(t, http.StatusOK).Body); diff != "" {
		t.Errorf("before the first charge (-want +got):\n%s", diff)
	}
	first := f.Call(http.MethodPost, path, key, charge(order)).Text("sessionId")
	second := f.Call(http.MethodPost, path, key, charge(order)).Text("sessionId")
	f.Call(http.MethodPost, path, key, charge("another"))
	f.Report(first, storetest.Paid("bank-1"))

	got := f.Call(http.MethodGet, byOrder(order), key, "").Want(t, http.StatusOK)
	want := map[string]any{"more": false, "sessions": []any{
		f.Call(http.MethodGet, path+"/"+second, key, "").Body, f.Call(http.MethodGet, path+"/"+first, key, "").Body,
	}}
	if diff := cmp.Diff(want, got.Body); diff != "" {
		t.Errorf("the newest first, each as it is read (-want +got):\n%s", diff)
	}
	for name, foreign := range map[string]string{"of another merchant": stranger, "of test mode": test} {
		if diff := cmp.Diff(empty, f.Call(http.MethodGet, byOrder(order), foreign, "").Want(t, http.StatusOK).Body); diff != "" {
			t.Errorf("with a key %s (-want +got):\n%s", name, diff)
		}
	}
	for range 19 {
		f.Call(http.MethodPost, path, key, charge(order)).Want(t, http.StatusCreated)
	}
	got = f.Call(http.MethodGet, byOrder(order), key, "").Want(t, http.StatusOK)
	if ids := listed(got); len(ids) != 20 || ids[19] != second || got.Body["more"] != true {
		t.Errorf("of 21 sessions %d are listed, and more: %v", len(ids), got.Body["more"])
	}
}

// A payer comes with a receipt. Any till of the shop finds the payment, as a person has typed the reference.
func TestListReference(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme")
	key := f.Key("till", acme, func(k *published.KeyRecord) {
		k.Permissions = []v1alpha1.Permission{v1alpha1.PermissionCreate, v1alpha1.PermissionRead, v1alpha1.PermissionCancel}
	})
	stranger, test := f.Key("stranger", f.Merchant("books")), f.TestKey("test", acme)
	ids := f.endSessions(key, "COMPLETED", "CANCELLED", "COMPLETED", "FAILED")
	paid := f.Call(http.MethodGet, path+"/"+ids[0], key, "")
	reference := paid.Text("reference")
	for i, id := range ids[1:] {
		if other := f.Call(http.MethodGet, path+"/"+id, key, "").Body["reference"]; other == reference || (other == nil) != (i != 1) {
			t.Errorf("the reference of session %d is %v, of the first one %s", i+1, other, reference)
		}
	}
	find := func(key, reference string) roomtest.Result {
		t.Helper()
		return f.Call(http.MethodGet, path+"?reference="+url.QueryEscape(reference), key, "").Want(t, http.StatusOK)
	}
	for _, typed := range []string{reference, strings.ToLower(reference), strings.ReplaceAll(reference, "-", " ")} {
		if diff := cmp.Diff(map[string]any{"sessions": []any{paid.Body}}, find(key, typed).Body); diff != "" {
			t.Errorf("%q (-want +got):\n%s", typed, diff)
		}
	}
	for name, foreign := range map[string]string{"of another merchant": stranger, "of test mode": test} {
		if got := listed(find(foreign, reference)); len(got) > 0 {
			t.Errorf("with a key %s: %v", name, got)
		}
	}
	id, err := session.ParseID(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	old := find(key, session.NewReference(id, time.Now().AddDate(0, 0, -8)).String())
	if kept, ok := old.Body["completeFrom"].(float64); !ok || time.Since(time.UnixMilli(int64(kept))) < 6*24*time.Hour || len(listed(old)) > 0 {
		t.Errorf("a receipt of 8 days ago: %v", old.Body)
	}
	for query, want := range map[string]string{
		"reference=1001":                              "reference must be one of a receipt, such as PHPG-2J6W",
		"reference=":                                  "reference must be one of a receipt, such as PHPG-2J6W",
		"reference=PHPG-2J6W&status=COMPLETED":        "status cannot be combined with reference",
		"reference=PHPG-2J6W&cursor=x":                "cursor must be one that an earlier page of this list returned",
		"reference=PHPG-2J6W&orderRef=1001":           "reference cannot be combined with orderRef",
		"reference=PHPG-2J6W&endedFrom=1600000000000": "endedFrom cannot be combined with reference",
	} {
		f.Call(http.MethodGet, path+"?"+query, key, "").WantError(t, http.StatusBadRequest, want)
	}
}

// ended pages through a list, and returns the ids of all pages.
func (f *fixture) allEnded(key, query string) (ids []string) {
	f.t.Helper()
	list, cursor := path+"?"+query, ""
	for range 1000 {
		got := f.Call(http.MethodGet, list+cursor, key, "").Want(f.t, http.StatusOK)
		ids = append(ids, listed(got)...)
		if got.Text("cursor") == "" {
			return ids
		}
		cursor = "&cursor=" + got.Text("cursor")
	}
	f.t.Fatal("the list does not end")
	return nil
}

// endSessions creates sessions and ends each as its status says.
func (f *fixture) endSessions(key string, statuses ...string) (ids []string) {
	f.t.Helper()
	for _, status := range statuses {
		id := f.Call(http.MethodPost, path, key, charge("1001")).Want(f.t, http.StatusCreated).Text("sessionId")
		switch status {
		case "COMPLETED":
			f.Report(id, storetest.Paid("bank-1"))
		case "FAILED":
			f.Report(id, storetest.Failed("bank-1"))
		default:
			f.Call(http.MethodPost, path+"/"+id+"/cancel", key, "").Want(f.t, http.StatusOK)
		}
		ids = append(ids, id)
	}
	return ids
}

func TestListEnded(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme")
	key, stranger := f.Key("till", acme), f.Key("stranger", f.Merchant("books"))
	test := f.TestKey("test", acme)
	f.Call(http.MethodPost, path, key, charge("pending")).Want(t, http.StatusCreated)
	ended := f.endSessions(key, "COMPLETED", "FAILED", "CANCELLED", "COMPLETED", "CANCELLED")
	tested := f.endSessions(test, "CANCELLED")
	f.Report(ended[0], storetest.Paid("bank-2")) // a refused payment is no end
	slices.Reverse(ended)

	now := time.Now()
	from, to := now.Add(-time.Hour).UnixMilli(), now.Add(time.Hour).UnixMilli()
	period := fmt.Sprintf("endedFrom=%d&endedTo=%d", from, to)
	for name, test := range map[string]struct {
		key, query string
		want       []string
	}{
		"all":                 {key, period, ended},
		"until now":           {key, fmt.Sprintf("endedFrom=%d", from), ended},
		"in pages":            {key, period + "&limit=2", ended},
		"one by one":          {key, period + "&limit=1", ended},
		"paid":                {key, period + "&status=COMPLETED", []string{ended[1], ended[4]}},
		"paid, one by one":    {key, period + "&status=COMPLETED&limit=1", []string{ended[1], ended[4]}},
		"expired":             {key, period + "&status=EXPIRED", nil},
		"later":               {key, fmt.Sprintf("endedFrom=%d&endedTo=%d", to, to+1), nil},
		"earlier":             {key, fmt.Sprintf("endedFrom=%d&endedTo=%d", from-1, from), nil},
		"of another merchant": {stranger, period, nil},
		"of test mode":        {test, period, tested},
	} {
		t.Run(name, func(t *testing.T) {
			if got := f.allEnded(test.key, test.query); !slices.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
	got := f.Call(http.MethodGet, path+"?"+period, key, "").Want(t, http.StatusOK)
	for i, one := range got.Body["sessions"].([]any) {
		sess := f.Call(http.MethodGet, path+"/"+ended[i], key, "").Body
		delete(sess, "payments") // what went back later is not in the list, which is of ends
		if diff := cmp.Diff(sess, one); diff != "" {
			t.Errorf("%s is listed otherwise than it is read (-want +got):\n%s", ended[i], diff)
		}
	}
	if got.Body["completeFrom"] != nil {
		t.Errorf("of the last hour: %s", got.Raw)
	}
	old := f.Call(http.MethodGet, path+"?endedFrom=1600000000000", key, "").Want(t, http.StatusOK)
	if since, _ := old.Body["completeFrom"].(float64); time.Since(time.UnixMilli(int64(since))).Round(time.Hour) != 7*24*time.Hour {
		t.Errorf("the response does not say what is no longer kept: %s", old.Raw)
	}
}

// With movements a day also has what else moved, each once, on whatever page: refused payments and refunds, of test mode only with a test key.
func TestListEnded_Movements(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme")
	key, stranger := f.Key("till", acme), f.Key("stranger", f.Merchant("books"))
	test := f.TestKey("test", acme)
	began := time.Now().Add(-time.Minute).UnixMilli()
	id := f.Call(http.MethodPost, path, key, charge("=1+1")).Want(t, http.StatusCreated).Text("sessionId")
	f.Report(id, storetest.Paid("bank-1"))
	f.Report(id, session.Payment{Rail: storetest.Bank, Ref: "bank-2", Outcome: session.Completed, AmountCents: session.MaxReportedCents, Currency: "JPY"})
	f.goesBack(id, session.Refund{Rail: storetest.Bank, Ref: "=back-1", PaymentRef: "bank-1", AmountCents: 500})
	others := f.endSessions(key, "FAILED", "CANCELLED")
	f.goesBack(id, session.Refund{Rail: storetest.Bank, Ref: "back-2", PaymentRef: "bank-2", AmountCents: session.MaxReportedCents})
	tested := f.create(test)
	f.settleTest(tested, "bank-1")
	f.settleTest(tested, "bank-2")
	asked := f.refund(tested, f.TestKey("office", acme, mayRefund), "return-1", `{"amountCents": 7}`).Want(t, http.StatusCreated)

	movement := func(kind, paymentRef, refundRef string, cents int64, currency string) map[string]any {
		moved := map[string]any{"kind": kind, "sessionId": id, "orderRef": "=1+1", "paymentRef": paymentRef, "amountCents": float64(cents), "currency": currency}
		if refundRef != "" {
			moved["refundRef"] = refundRef
		}
		return moved
	}
	own := []any{
		movement("refund", "bank-2", "back-2", session.MaxReportedCents, "JPY"), movement("refund", "bank-1", "=back-1", 500, "EUR"),
		movement("refused", "bank-2", "", session.MaxReportedCents, "JPY"),
	}
	inTestMode := []any{movement("refund", "bank-1", asked.Text("refundId"), 7, "EUR"), movement("refused", "bank-2", "", 1250, "EUR")}
	for _, one := range inTestMode {
		moved := one.(map[string]any)
		moved["sessionId"], moved["livemode"] = tested, false
		delete(moved, "orderRef")
	}
	for name, test := range map[string]struct {
		key, query string
		sessions   []string
		movements  []any
	}{
		"all":                 {key, "&movements=true", []string{others[1], others[0], id}, own},
		"in pages":            {key, "&movements=true&limit=2", []string{others[1], others[0], id}, own},
		"one by one":          {key, "&movements=true&limit=1", []string{others[1], others[0], id}, own},
		"of another merchant": {stranger, "&movements=true", nil, nil},
		"of test mode":        {test, "&movements=true&limit=1", []string{tested}, inTestMode},
	} {
		t.Run(name, func(t *testing.T) {
			var sessions []string
			var movements []any
			for cursor, more := "", true; more; {
				got := f.Call(http.MethodGet, fmt.Sprintf("%s?endedFrom=%d%s%s", path, began, test.query, cursor), test.key, "").Want(t, http.StatusOK)
				page, has := got.Body["movements"].([]any)
				if !has {
					t.Fatalf("a page has no movements: %s", got.Raw)
				}
				for _, one := range page {
					if at, _ := one.(map[string]any)["recordedAt"].(float64); int64(at) < began || int64(at) > time.Now().UnixMilli() {
						t.Errorf("it was recorded at %v", at)
					}
				}
				sessions, movements = append(sessions, listed(got)...), append(movements, page...)
				more, cursor = got.Text("cursor") != "", "&cursor="+got.Text("cursor")
			}
			if !slices.Equal(sessions, test.sessions) {
				t.Errorf("sessions %v, want %v", sessions, test.sessions)
			}
			unknown := cmpopts.IgnoreMapEntries(func(name string, _ any) bool { return strings.HasSuffix(name, "At") || name == "keyId" })
			if diff := cmp.Diff(test.movements, movements, unknown); diff != "" {
				t.Errorf("movements (-want +got):\n%s", diff)
			}
		})
	}
	for _, query := range []string{"", "&movements=false"} {
		got := f.Call(http.MethodGet, fmt.Sprintf("%s?endedFrom=%d%s", path, began, query), key, "").Want(t, http.StatusOK)
		if _, has := got.Body["movements"]; has || len(listed(got)) != 3 {
			t.Errorf("without movements: %s", got.Raw)
		}
	}
}

// The day of a till that goes on selling: what ends while it is read is on no later page, and nothing is missing or there twice.
func TestListEnded_StableWhileSalesComeIn(t *testing.T) {
	f := newFixture(t)
	key := f.Key("till", f.Merchant("acme"))
	before := f.endSessions(key, slices.Repeat([]string{"CANCELLED", "COMPLETED"}, 10)...)
	slices.Reverse(before)
	selling, stop := sync.WaitGroup{}, make(chan struct{})
	selling.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				f.endSessions(key, "CANCELLED")
			}
		}
	})
	got := f.allEnded(key, "endedFrom="+strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10)+"&limit=3")
	close(stop)
	selling.Wait()
	if len(got) < len(before) || !slices.Equal(got[len(got)-len(before):], before) {
		t.Errorf("%d sessions, whose last are not the %d that had ended before:\n%v\n%v", len(got), len(before), got, before)
	}
	if len(got) > len(before)+3 {
		t.Errorf("%d sessions: later pages have what ended meanwhile", len(got))
	}
}

func TestList_BadParameters(t *testing.T) {
	f := newFixture(t)
	acme := f.Merchant("acme")
	key := f.Key("till", acme)
	stranger := f.Key("stranger", f.Merchant("books"))
	f.endSessions(stranger, "CANCELLED", "CANCELLED")
	foreign := f.Call(http.MethodGet, path+"?endedFrom=1600000000000&limit=1", stranger, "").Want(t, http.StatusOK).Text("cursor")
	const (
		timestamp = " " + session.TimestampRule
		cursor    = "cursor must be one that an earlier page of this list returned"
		status    = "status must be COMPLETED, FAILED, EXPIRED or CANCELLED; no list of a period has pending sessions"
		limit     = "limit must be an integer from 1 to 200"
		movements = "movements must be true or false"
		nothing   = "give orderRef, or reference, or endedFrom and optionally endedTo, status, movements, cursor and limit"
	)
	for query, want := range map[string]string{
		"":                                   nothing,
		"status=COMPLETED":                   nothing,
		"endedTo=1":                          nothing,
		"cursor=" + foreign:                  nothing,
		"orderRef=":                          "orderRef must not be empty",
		"orderRef":                           "orderRef must not be empty",
		"orderRef=%00":                       "orderRef must be a string of at most 255 characters without control characters",
		"orderRef=%ff":                       "orderRef must be a string of at most 255 characters without control characters",
		"orderRef=a&orderRef=b":              "orderRef must be given at most once",
		"orderRef=a&endedFrom=1600000000000": "endedFrom cannot be combined with orderRef",
		"orderRef=a&limit=1":                 "limit cannot be combined with orderRef",
		"orderRef=a&orderref=a":              `unknown parameter "orderref"`,
		"order=a":                            `unknown parameter "order"`,
		"endedFrom=1600000000000&x%0a=1":     `unknown parameter "x\n"`,
		"endedFrom=1600000000000&endedFrom=1600000000000": "endedFrom must be given at most once",
		"endedFrom=":           "endedFrom" + timestamp,
		"endedFrom=0":          "endedFrom" + timestamp,
		"endedFrom=-1":         "endedFrom" + timestamp,
		"endedFrom=%2B1":       "endedFrom" + timestamp,
		"endedFrom=01":         "endedFrom" + timestamp,
		"endedFrom=1e3":        "endedFrom" + timestamp,
		"endedFrom=2026-11-22": "endedFrom" + timestamp,
		"endedFrom=1795215600": "endedFrom" + timestamp, // seconds
		"endedFrom=1600000000000&endedTo=1795215600":              "endedTo" + timestamp,
		"endedFrom=9999999999999999":                              "endedFrom" + timestamp,
		"endedFrom=1600000000000&endedTo=x":                       "endedTo" + timestamp,
		"endedFrom=1600000000000&endedTo=1600000000000":           "endedTo must be later than endedFrom",
		"endedFrom=1600000000001&endedTo=1600000000000":           "endedTo must be later than endedFrom",
		"endedFrom=1600000000000&status=PENDING":                  status,
		"endedFrom=1600000000000&status=":                         status,
		"endedFrom=1600000000000&status=paid":                     status,
		"endedFrom=1600000000000&limit=0":                         limit,
		"endedFrom=1600000000000&limit=201":                       limit,
		"endedFrom=1600000000000&limit=ten":                       limit,
		"endedFrom=1600000000000&cursor=":                         cursor,
		"endedFrom=1600000000000&cursor=1-0":                      cursor,
		"endedFrom=1600000000000&cursor=" + foreign:               cursor,
		"movements=true":                                          nothing,
		"orderRef=a&movements=true":                               "movements cannot be combined with orderRef",
		"endedFrom=1600000000000&movements=":                      movements,
		"endedFrom=1600000000000&movements":                       movements,
		"endedFrom=1600000000000&movements=1":                     movements,
		"endedFrom=1600000000000&movements=True":                  movements,
		"endedFrom=1600000000000&movements=true%00":               movements,
		"endedFrom=1600000000000&movements=true&movements=true":   "movements must be given at most once",
		"endedFrom=1600000000000&movements=true&status=COMPLETED": "movements cannot be combined with status, which no movement has",
		"endedFrom=1600000000000&Movements=true":                  `unknown parameter "Movements"`,
		"endedFrom=%zz":                                           "the query is malformed: write each parameter as name=value, percent-encoded",
		"endedFrom=1600000000000;limit=2":                         "the query is malformed: write each parameter as name=value, percent-encoded",
	} {
		got := f.Call(http.MethodGet, path+"?"+query, key, "")
		got.WantError(t, http.StatusBadRequest, want)
		if got.Header.Get("Error-Code") != "invalid_request" || got.Header.Get("RateLimit") == "" {
			t.Errorf("%s: %v", query, got.Header)
		}
	}
	f.Call(http.MethodGet, path+"?nothing", "", "").Want(t, http.StatusUnauthorized)
}
