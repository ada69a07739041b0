package session_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	optional := func(t *rapid.T, name string) *int64 {
		if rapid.Bool().Draw(t, name+" given") {
			return new(rapid.Int64Range(0, session.MaxAmountCents).Draw(t, name))
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) {
		want := session.Record{
			MerchantID: "abcdefgh2345", MerchantName: rapid.String().Draw(t, "name"),
			Currency:       rapid.SampledFrom([]string{"USD", "EUR", "KWD"}).Draw(t, "currency"),
			LifetimeMillis: rapid.Int64Range(1, 86_400_000).Draw(t, "lifetime"),
			Charge: session.Charge{
				AmountCents: rapid.Int64Range(1, session.MaxAmountCents).Draw(t, "amount"),
				OrderRef:    rapid.String().Draw(t, "order"), TaxCents: optional(t, "tax"), TipCents: optional(t, "tip"),
			},
		}
		text := want.Append(nil)
		got, ok := session.ParseRecord(string(text))
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Fatalf("%s, %t (-want +got):\n%s", text, ok, diff)
		}
		if want.Currency == session.DefaultCurrency {
			want.Currency = "" // is not stored
		}
		encoded, err := json.Marshal(want)
		if _, rest, _ := strings.Cut(string(text), "{"); err != nil || "{"+rest != string(encoded) {
			t.Fatalf("%s, json.Marshal writes %s (%v)", text, encoded, err)
		}
	})
}

// A field that the short cut of ParseRecord does not know costs each read two microseconds and ten allocations.
func TestReadingARecordTakesTheShortCut(t *testing.T) {
	record := session.Record{MerchantID: "abcdefgh2345", MerchantName: "Acme", Currency: "EUR", LifetimeMillis: 900_000}
	charge, pointers := reflect.ValueOf(&record.Charge).Elem(), 0
	for i := range charge.NumField() {
		switch field := charge.Field(i); {
		case charge.Type().Field(i).Tag.Get("json") == "-":
		case field.Kind() == reflect.String:
			field.SetString("text")
		case field.Kind() == reflect.Pointer:
			field.Set(reflect.New(field.Type().Elem()))
			pointers++
		default:
			t.Fatalf("set %s here", charge.Type().Field(i).Name)
		}
	}
	stored := string(record.Append(nil))
	if got, ok := session.ParseRecord(stored); !ok || !reflect.DeepEqual(got, record) {
		t.Errorf("%s is read as %+v, want %+v", stored, got, record)
	}
	allocations := testing.AllocsPerRun(100, func() {
		if _, ok := session.ParseRecord(stored); !ok {
			t.Fatal(stored)
		}
	})
	if int(allocations) > pointers {
		t.Errorf("%v allocations for %s, want one for each of the %d pointers", allocations, stored, pointers)
	}
}

func BenchmarkAppendRecord(b *testing.B) {
	record := session.Record{MerchantID: "abcdefgh2345", MerchantName: "Acme Coffee", LifetimeMillis: 900_000}
	record.AmountCents, record.OrderRef = 1250, "1001"
	b.ReportAllocs()
	var room [128]byte
	for b.Loop() {
		record.Append(room[:0])
	}
}

func BenchmarkParseRecord(b *testing.B) {
	const text = `abcdefgh2345 1250 {"n":"Acme Coffee","l":900000,"o":"1001"}`
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := session.ParseRecord(text); !ok {
			b.Fatal(text)
		}
	}
}
