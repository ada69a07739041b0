package payments_test

import (
	"encoding/csv"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/internal/feed"
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
	want := "sessionId,status,amountCents,currency,amount,taxCents,tipCents,orderRef,paymentRef,reason,createdAt,endedAt,endedAtLocal,livemode,keyId,key,kind,net,refundRef,gross,refunded\r\n" +
		`ps_abcdefgh2345T2xV9bLrYc8WdNeHq7,COMPLETED,1250,EUR,12.50,110,0,"table 7, ""window""",card-1,,2026-10-25T00:30:04.123Z,2026-10-25T00:30:05.123Z,2026-10-25 02:30:05,true,abcdefgh2345,till-1,payment,12.50,,12.50,0.00` + "\r\n" +
		"ps_testabcdefgh2345T2xV9bLrYc8WdNeHq7,FAILED,7,JPY,7,,,,,\"no funds\r\nleft\",2026-10-25T00:30:05.123Z,2026-10-25T01:30:05.123Z,2026-10-25 02:30:05,false,,,payment,0,,0,0\r\n"
	if diff := cmp.Diff(want, write(t, zone(t, "Europe/Berlin"), paid, failed)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A spreadsheet that separates cells at semicolons, tabs or bars too finds each amount in its column.
func TestCSV_Separators(t *testing.T) {
	for _, order := range []string{"10;20", "10\t20", "10|20", " 10", "10,20", `"10"`} {
		reader := csv.NewReader(strings.NewReader(write(t, time.UTC, payments.Payment{OrderRef: order, AmountCents: 1250, Currency: "EUR", Status: session.Completed})))
		if rows, err := reader.ReadAll(); err != nil || len(rows) != 2 || rows[1][7] != order {
			t.Errorf("%q is written as %q, %v", order, rows, err)
		}
		for _, separator := range ";\t|" {
			line := write(t, time.UTC, payments.Payment{OrderRef: order, AmountCents: 1250, Currency: "EUR", Status: session.Completed})
			reader := csv.NewReader(strings.NewReader(outsideQuotes(line, ',', separator)))
			reader.Comma = separator
			if rows, err := reader.ReadAll(); err != nil || len(rows) != 2 || len(rows[1]) != len(rows[0]) || rows[1][19] != "12.50" {
				t.Errorf("%q: with %q as a separator too the row is %q, %v", order, separator, rows, err)
			}
		}
	}
}

// outsideQuotes replaces a separator that is not within quotes.
func outsideQuotes(text string, separator, by rune) string {
	quoted := false
	return strings.Map(func(r rune) rune {
		if r == '"' {
			quoted = !quoted
		}
		if r == separator && !quoted {
			return by
		}
		return r
	}, text)
}

// A movement has the columns of a payment, and no status.
func TestCSV_Movements(t *testing.T) {
	recorded := time.Date(2026, 10, 25, 0, 30, 5, 0, time.UTC)
	sess := session.Session{CreatedAt: recorded.Add(-time.Hour), Charge: session.Charge{AmountCents: 7, OrderRef: "1001", TaxCents: new(int64(1))}, Currency: "EUR", Status: session.Completed, KeyID: "abcdefgh2345"}
	var text strings.Builder
	file, err := payments.NewCSV(&text, zone(t, "Europe/Berlin"))
	for _, moved := range []struct {
		refused *session.Payment
		refund  *feed.Refund
	}{
		{refused: &session.Payment{Ref: "card-2", AmountCents: 1250, Currency: "JPY"}},
		{refund: &feed.Refund{Refund: session.Refund{Ref: "=back-1", PaymentRef: "card-1", AmountCents: 5, At: recorded.Add(time.Second)}, Currency: "EUR"}},
	} {
		movement, ok := payments.NewMovement(&sess, moved.refused, moved.refund, recorded)
		if !ok {
			t.Fatalf("%v is no movement", moved)
		}
		movement.Key = "till-1"
		err = errors.Join(err, file.WriteMovement(movement))
	}
	if err := errors.Join(err, file.Flush()); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(text.String(), "\r\n")
	none := session.ID{}.String()
	want := none + ",,1250,JPY,1250,,,1001,card-2,,2026-10-24T23:30:05.000Z,2026-10-25T00:30:05.000Z,2026-10-25 02:30:05,true,abcdefgh2345,till-1,refused,1250,,1250,0\r\n" +
		none + ",,-5,EUR,-0.05,,,1001,card-1,,2026-10-24T23:30:05.000Z,2026-10-25T00:30:06.000Z,2026-10-25 02:30:06,true,abcdefgh2345,till-1,refund,-0.05,'=back-1,0.00,0.05\r\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if movement, ok := payments.NewMovement(&sess, nil, nil, recorded); ok {
		t.Errorf("the end of a session is %v", movement)
	}
}

var (
	formula = regexp.MustCompile("(^|[;|\t])[=+\\-@\t\r\n]")
	guard   = regexp.MustCompile("(^|[;|\t])'")
)

// What a payer's order or a rail's text begins with must not run in the spreadsheet of an accountant.
func FuzzCSV_HasNoFormula(f *testing.F) {
	for _, text := range []string{`=HYPERLINK("http://evil.example","x")`, "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1", "'quoted", "plain", "", "=", "ä=1", "a\r\nb", "10;=1+1", "10|-1;;'"} {
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
		var moved strings.Builder
		file, err := payments.NewCSV(&moved, time.UTC)
		if err == nil {
			err = errors.Join(file.WriteMovement(payments.Movement{Kind: payments.Refunded, OrderRef: text, PaymentRef: text, RefundRef: text}), file.Flush())
		}
		if err != nil {
			t.Fatal(err)
		}
		refund, err := csv.NewReader(strings.NewReader(moved.String())).ReadAll()
		if err != nil || len(refund) != 2 || refund[1][7] != rows[1][7] || refund[1][8] != rows[1][8] || refund[1][18] != rows[1][8] {
			t.Fatalf("a refund is written as %q, a payment as %q: %v", refund, rows, err)
		}
		text = strings.ReplaceAll(text, "\r", "") // encoding/csv writes none within a field; no field of the API has one
		for _, got := range rows[1][7:10] {
			if formula.MatchString(got) {
				t.Fatalf("%q is a formula", got)
			}
			if got = guard.ReplaceAllString(got, "$1"); got != text {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}
