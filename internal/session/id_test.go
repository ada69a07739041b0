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

const validID = "ps_abcdefgh2345GHIJKabcd012345678"

func TestMerchantBucket_FNV(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		merchantID := rapid.String().Draw(t, "merchant id")
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(merchantID))
		if got, want := session.MerchantBucket(merchantID), session.Bucket(hash.Sum32()%64); got != want {
			t.Fatalf("MerchantBucket(%q) = %d, want %d", merchantID, got, want)
		}
	})
	// Written down, for a change would lose every session in Redis.
	for merchantID, want := range map[string]session.Bucket{"": 5, "a": 44, "abcdefgh2345": 45} {
		if got := session.MerchantBucket(merchantID); got != want {
			t.Errorf("MerchantBucket(%q) = %d, want %d", merchantID, got, want)
		}
	}
}

// A session id names the account of its session.
func TestNewID_Parses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		merchantID := rapid.StringMatching(`[a-su-z2-7][a-z2-7]{11}`).Draw(t, "merchant id") // never test
		testMode, label := rapid.Bool().Draw(t, "test mode"), "ps_"
		if testMode {
			label = "ps_test"
		}
		id := session.NewID(merchantID, testMode)
		if !regexp.MustCompile("^" + label + merchantID + "[0-9A-Za-z]{18}$").MatchString(id.String()) {
			t.Fatalf("merchant %s, test mode %t: %s", merchantID, testMode, id)
		}
		parsed, err := session.ParseID(id.String())
		if err != nil || parsed != id || parsed.MerchantID() != merchantID || parsed.TestMode() != testMode ||
			parsed.Bucket() != session.MerchantBucket(merchantID) || parsed.Account() != session.Account(merchantID, testMode) {
			t.Fatalf("ParseID(%s) = %s of merchant %s, test mode %t, %v", id, parsed, parsed.MerchantID(), parsed.TestMode(), err)
		}
	})
}

func TestNewID_Random(t *testing.T) {
	const n = 26_000
	seen := make(map[session.ID]bool, n)
	var counts [256]int
	for range n {
		id := session.NewID("abcdefgh2345", false)
		if seen[id] {
			t.Fatalf("%s came twice", id)
		}
		seen[id] = true
		for _, c := range []byte(id.String()[15:]) {
			counts[c]++
		}
	}
	// 468,000 characters over 62: each expected 7,548 times with a standard deviation of 87. A modulo
	// bias would lift some by a quarter.
	for c, count := range counts {
		if count != 0 && (count < 7_000 || count > 8_500) {
			t.Errorf("%q came %d times, far from an equal share", rune(c), count)
		}
	}
}

func TestParseID_Invalid(t *testing.T) {
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
		"an upper-case merchant":  "ps_Abcdefgh2345" + validID[15:],
		"a merchant with a 1":     "ps_abcdefgh2341" + validID[15:],
		"a merchant with a colon": "ps_abcdefgh:345" + validID[15:],
		"a slash":                 validID[:20] + "/" + validID[21:],
		"a NUL":                   validID[:20] + "\x00" + validID[21:],
		"a closing brace":         validID[:20] + "}" + validID[21:],
		"a letter of two bytes":   validID[:20] + "é" + validID[22:],
		"a newline at the end":    validID[:len(validID)-1] + "\n",
		"something very long":     strings.Repeat(validID, 1000),
	} {
		id, err := session.ParseID(s)
		if !errors.Is(err, session.ErrMalformedID) || !id.IsZero() {
			t.Errorf("%s: ParseID = %s, %v; want none and ErrMalformedID", desc, id, err)
		}
	}
}

func TestID_Zero(t *testing.T) {
	var id session.ID
	if !id.IsZero() || id.String() != "" || id.MerchantID() != "" || id.TestMode() || fmt.Sprint(id) != "" {
		t.Errorf("zero ID: %q of merchant %q", id, id.MerchantID())
	}
}

func FuzzParseID(f *testing.F) {
	for _, seed := range []string{"", validID, "ps_test" + validID[3:], "ps_Z" + validID[4:], validID[:32], strings.ToUpper(validID)} {
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
		if id.String() != s || id.MerchantID() != s[len(s)-30:len(s)-18] || id.TestMode() != strings.HasPrefix(s, "ps_test") {
			t.Fatalf("ParseID(%q) = %s of merchant %s", s, id, id.MerchantID())
		}
	})
}

func BenchmarkNewID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = session.NewID("abcdefgh2345", false)
	}
}

func BenchmarkParseID(b *testing.B) {
	text := session.NewID("abcdefgh2345", false).String()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := session.ParseID(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMerchantBucket(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_ = session.MerchantBucket("abcdefghijkl")
	}
}
