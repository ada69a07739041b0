package session_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestParseIdempotencyKey(t *testing.T) {
	for header, key := range map[string]string{
		"order-1001":                         "order-1001",
		`"order-1001"`:                       "order-1001",
		"a":                                  "a",
		"~!@#$%^&*()'":                       "~!@#$%^&*()'",
		`8"x11"`:                             `8"x11"`,
		strings.Repeat("k", 255):             strings.Repeat("k", 255),
		`"` + strings.Repeat("k", 255) + `"`: strings.Repeat("k", 255),
	} {
		parsed, err := session.ParseIdempotencyKey(header)
		if err != nil {
			t.Errorf("%.40s: %v", header, err)
			continue
		}
		if parsed.IsZero() || parsed.Hash() != sha256Hex(key) {
			t.Errorf("%.40s: Hash is not of the key itself", header)
		}
	}
}

func TestParseIdempotencyKey_Invalid(t *testing.T) {
	for desc, header := range map[string]string{
		"nothing":                    "",
		"a quote":                    `"`,
		"nothing in quotes":          `""`,
		"a quote that is not closed": `"order`,
		"a quote inside quotes":      `"or"der"`,
		"an escape":                  `"or\"der"`,
		"a backslash in quotes":      `"or\der"`,
		"text behind the quotes":     `"order"; a=1`,
		"a space":                    "order 1001",
		"a tab":                      "order\t1001",
		"a NUL":                      "order\x00",
		"a DEL":                      "order\x7f",
		"a newline":                  "order\n",
		"a letter that is not ASCII": "commandé",
		"256 characters":             strings.Repeat("k", 256),
		"256 characters in quotes":   `"` + strings.Repeat("k", 256) + `"`,
	} {
		key, err := session.ParseIdempotencyKey(header)
		if !errors.Is(err, session.ErrMalformedIdempotencyKey) || !key.IsZero() {
			t.Errorf("%s: error %v, want ErrMalformedIdempotencyKey", desc, err)
		}
	}
}

func TestIdempotencyKey_Zero(t *testing.T) {
	if hash := (session.IdempotencyKey{}).Hash(); hash != "" {
		t.Errorf("Hash of none = %s", hash)
	}
}

func FuzzParseIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"", "order-1001", `"order-1001"`, `"`, `""`, `"a"b"`, "a b", strings.Repeat("k", 256)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		key, err := session.ParseIdempotencyKey(header)
		if err != nil {
			if !errors.Is(err, session.ErrMalformedIdempotencyKey) || !key.IsZero() {
				t.Fatalf("%q: %v", header, err)
			}
			return
		}
		// What is accepted bare is the same key in quotes, unless quoting would need an escape.
		if !strings.ContainsAny(header, `"\`) {
			quoted, err := session.ParseIdempotencyKey(`"` + header + `"`)
			if err != nil || quoted != key {
				t.Fatalf("%q and its quoted form differ: %v", header, err)
			}
		}
		if len(header) > 257 || len(key.Hash()) != 64 {
			t.Fatalf("%q was accepted", header)
		}
	})
}

func BenchmarkIdempotencyKey(b *testing.B) {
	for _, header := range []struct{ name, value string }{
		{"form=bare", "till-1-000000004711"}, {"form=quoted", `"till-1-000000004711"`},
	} {
		b.Run(header.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				key, err := session.ParseIdempotencyKey(header.value)
				if err != nil {
					b.Fatal(err)
				}
				_ = key.Hash()
			}
		})
	}
}
