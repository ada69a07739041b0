package payments_test

import (
	"encoding/csv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

func write(t testing.TB, location *time.Location, all ...payments.Payment) string {
	t.Helper()
	var text strings.Builder
	lines, err := payments.NewCSV(&text, location)
	if err != nil {
		t.Fatal(err)
	}
	for _, payment := range all {
		if err := lines.Write(payment); err != nil {
			t.Fatal(err)
		}
	}
	if err := lines.Flush(); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestCSV(t *testing.T) {
	ended := time.Date(2026, 10, 25, 0, 30, 5, 123e6, time.UTC) // the first of two half past two in Berlin
	paid := payments.Payment{
		SessionID: "ps_abcdefgh2345T2xV9bLrYc8WdNeHq7", Status: session.Completed, AmountCents: 1250, Currency: "EUR", OrderRef: `table 7, "window"`,
		TaxCents: new(int64(110)), TipCents: new(int64(0)), CreatedAt: ended.UnixMilli() - 1000, EndedAt: ended.UnixMilli(), PaymentRef: "card-1", KeyID: "abcdefgh2345", Key: "till-1",
	}
	failed := payments.Payment{
		SessionID: "ps_testabcdefgh2345T2xV9bLrYc8WdNeHq7", Status: session.Failed, AmountCents: 7, Currency: "JPY", Livemode: new(false),
		CreatedAt: ended.UnixMilli(), EndedAt: ended.Add(time.Hour).UnixMilli(), Reason: "no funds\nleft",
	}
	want := "sessionId,status,amountCents,currency,amount,taxCents,tipCents,orderRef,paymentRef,reason,createdAt,endedAt,endedAtLocal,livemode,keyId,key\r\n" +
		`ps_abcdefgh2345T2xV9bLrYc8WdNeHq7,COMPLETED,1250,EUR,12.50,110,0,"table 7, ""window""",card-1,,2026-10-25T00:30:04.123Z,2026-10-25T00:30:05.123Z,2026-10-25 02:30:05,true,abcdefgh2345,till-1` + "\r\n" +
		"ps_testabcdefgh2345T2xV9bLrYc8WdNeHq7,FAILED,7,JPY,7,,,,,\"no funds\r\nleft\",2026-10-25T00:30:05.123Z,2026-10-25T01:30:05.123Z,2026-10-25 02:30:05,false,,\r\n"
	if diff := cmp.Diff(want, write(t, zone(t, "Europe/Berlin"), paid, failed)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a payer's order or a rail's text begins with must not run in the spreadsheet of an accountant.
func FuzzCSV_HasNoFormula(f *testing.F) {
	for _, text := range []string{`=HYPERLINK("http://evil.example","x")`, "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1", "'quoted", "plain", "", "=", "ä=1", "a\r\nb"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return // the API's JSON has none
		}
		rows, err := csv.NewReader(strings.NewReader(write(t, time.UTC, payments.Payment{OrderRef: text, PaymentRef: text, Reason: text}))).ReadAll()
		if err != nil || len(rows) != 2 {
			t.Fatalf("%d rows: %v", len(rows), err)
		}
		text = strings.ReplaceAll(text, "\r", "") // encoding/csv writes none within a field; no field of the API has one
		for _, got := range rows[1][7:10] {
			if strings.HasPrefix(got, "'") {
				got = got[1:]
			} else if got != "" && strings.ContainsAny(got[:1], "=+-@\t\r\n") {
				t.Fatalf("%q is a formula", got)
			}
			if got != text {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}
