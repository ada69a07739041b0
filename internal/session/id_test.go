package session_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

const validID = "ps_3f0123456789ABCDEFGHIJabcd"

func TestBucketOfIsFNV(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		merchantID := rapid.String().Draw(t, "merchant id")
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(merchantID))
		if got, want := session.BucketOf(merchantID), session.Bucket(hash.Sum32()%64); got != want {
			t.Fatalf("BucketOf(%q) = %d, want %d", merchantID, got, want)
		}
	})
	// Written down, for a change would lose every session in Redis.
	for merchantID, want := range map[string]session.Bucket{"": 5, "a": 44, "abcdefgh2345": 45} {
		if got := session.BucketOf(merchantID); got != want {
			t.Errorf("BucketOf(%q) = %d, want %d", merchantID, got, want)
		}
	}
}

func TestNewIDsParseAndKeepTheirBucket(t *testing.T) {
	shape := map[bool]*regexp.Regexp{
		false: regexp.MustCompile(`^ps_[0-3][0-9a-f][0-9A-Za-z]{24}$`), true: regexp.MustCompile(`^ps_test[0-3][0-9a-f][0-9A-Za-z]{24}$`),
	}
	rapid.Check(t, func(t *rapid.T) {
		bucket := session.Bucket(rapid.IntRange(0, session.Buckets-1).Draw(t, "bucket"))
		id, testMode := session.NewID(bucket), rapid.Bool().Draw(t, "testMode")
		if testMode {
			id = session.NewTestID(bucket)
		}
		if !shape[testMode].MatchString(id.String()) || id.TestMode() != testMode {
			t.Fatalf("bucket %d, test mode %t: %s", bucket, testMode, id)
		}
		parsed, err := session.ParseID(id.String())
		if err != nil || parsed != id || parsed.Bucket() != bucket {
			t.Fatalf("ParseID(%s) = %s in bucket %d, %v", id, parsed, parsed.Bucket(), err)
		}
	})
}

func TestNewIDsNeverRepeatAndUseTheWholeAlphabet(t *testing.T) {
	const n = 20_000
	seen := make(map[session.ID]bool, n)
	var counts [256]int
	for range n {
		id := session.NewID(7)
		if seen[id] {
			t.Fatalf("%s came twice", id)
		}
		seen[id] = true
		for _, c := range []byte(id.String()[5:]) {
			counts[c]++
		}
	}
	// 480,000 characters over 62: each expected 7,742 times with a standard deviation of 87. A modulo
	// bias would lift some by a quarter.
	for c, count := range counts {
		if count != 0 && (count < 7_000 || count > 8_500) {
			t.Errorf("%q came %d times, far from an equal share", rune(c), count)
		}
	}
}

func TestParseIDRefuses(t *testing.T) {
	if _, err := session.ParseID(validID); err != nil {
		t.Fatalf("the valid id of this test: %v", err)
	}
	for desc, s := range map[string]string{
		"nothing":                 "",
		"the label alone":         "ps_",
		"a character less":        validID[:len(validID)-1],
		"a character more":        validID + "0",
		"another label":           "pi_" + validID[3:],
		"an upper-case label":     "PS_" + validID[3:],
		"two labels":              "ps_testtest" + validID[3:],
		"another mode":            "ps_live" + validID[3:],
		"half a label":            "ps_tes" + validID[3:],
		"a bucket beyond 63":      "ps_40" + validID[5:],
		"an upper-case bucket":    "ps_3F" + validID[5:],
		"a bucket with a sign":    "ps_+1" + validID[5:],
		"a bucket that is no hex": "ps_0g" + validID[5:],
		"a slash":                 validID[:10] + "/" + validID[11:],
		"a NUL":                   validID[:10] + "\x00" + validID[11:],
		"a closing brace":         validID[:10] + "}" + validID[11:],
		"a letter of two bytes":   validID[:10] + "é" + validID[12:],
		"a newline at the end":    validID[:len(validID)-1] + "\n",
		"something very long":     strings.Repeat(validID, 1000),
	} {
		id, err := session.ParseID(s)
		if !errors.Is(err, session.ErrMalformedID) || !id.IsZero() {
			t.Errorf("%s: ParseID = %s, %v; want none and ErrMalformedID", desc, id, err)
		}
	}
}

func TestTheZeroIDNamesNothing(t *testing.T) {
	var id session.ID
	if !id.IsZero() || id.String() != "" || id.Bucket() != 0 || fmt.Sprint(id) != "" {
		t.Errorf("zero ID: %q in bucket %d", id, id.Bucket())
	}
}

func FuzzParseID(f *testing.F) {
	for _, seed := range []string{"", validID, "ps_test" + validID[3:], "ps_40" + validID[5:], validID[:28], strings.ToUpper(validID)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := session.ParseID(s)
		if err != nil {
			if !errors.Is(err, session.ErrMalformedID) || !id.IsZero() {
				t.Fatalf("ParseID(%q) = %s, %v", s, id, err)
			}
			return
		}
		if id.String() != s || id.Bucket() >= session.Buckets || fmt.Sprintf("%02x", uint8(id.Bucket())) != s[len(s)-26:len(s)-24] ||
			id.TestMode() != strings.HasPrefix(s, "ps_test") {
			t.Fatalf("ParseID(%q) = %s in bucket %d", s, id, id.Bucket())
		}
	})
}
