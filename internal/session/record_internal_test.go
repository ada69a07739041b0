package session

import (
	"slices"
	"strings"
	"testing"
)

// A release that has appended a field reads the records of all releases before it, which lack the field.
func TestParseRecord_ShorterRecord(t *testing.T) {
	const oldest = "abcdefgh2345\t1250\t900000\t2yylmkzckvhj\t\t\t\t1001\tAcme Coffee"
	want, ok := ParseRecord(oldest)
	if !ok {
		t.Fatal("this release does not read it")
	}
	appended := "not read"
	later := append(slices.Clone(recordFields[:]), recordField{read: func(_ *Record, text string) bool {
		appended = text
		return true
	}})
	if got, ok := parseRecord(later, oldest); !ok || got != want || appended != "" {
		t.Errorf("%+v, %t; the appended field is %q", got, ok, appended)
	}
	if _, ok := parseRecord(later, oldest+strings.Repeat("\t", len(recordFields)-requiredRecordFields)+"\tlater"); !ok || appended != "later" {
		t.Errorf("%t; the appended field is %q", ok, appended)
	}
}

// An appended field has a meaning where it is empty: it was not given.
func TestRecordFields_AppendedAreOptional(t *testing.T) {
	for i, field := range recordFields[requiredRecordFields:] {
		if !field.read(new(Record), "") {
			t.Errorf("the appended field %d is required, so no older record can be read", requiredRecordFields+i)
		}
	}
}
