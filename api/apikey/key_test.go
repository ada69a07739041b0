package apikey_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

const keyID = "abcdefgh2345"

// known was put together by hand and its checksum computed by another CRC-32 (zlib's), so that the
// grammar cannot drift: keys that are out there must stay valid.
const known = "mk_live_abcdefgh2345_0123456789ABCDEFGHIJKLMNOPQRSTUV2EHy8w"

// knownTest is the same with the label of a test key.
const knownTest = "mk_test_abcdefgh2345_0123456789ABCDEFGHIJKLMNOPQRSTUV45h5dk"

func TestParseReadsAKnownTestKey(t *testing.T) {
	key, err := apikey.Parse(knownTest)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := apikey.IDOf(knownTest); id != keyID || !ok || key.ID() != keyID {
		t.Errorf("IDOf() = %q, %v, ID() = %q, want %q", id, ok, key.ID(), keyID)
	}
	if got, want := key.Prefix(), "mk_test_abcdefgh2345_0123"; got != want {
		t.Errorf("Prefix() = %q, want %q", got, want)
	}
	if !apikey.IsTest(knownTest) || apikey.IsTest(known) {
		t.Error("IsTest does not tell a test key from a live one")
	}
}

// The checksum covers the label: a test key cannot be written as a live one.
func TestAnotherLabelIsNoticed(t *testing.T) {
	for _, s := range []string{"mk_live_" + knownTest[8:], "mk_test_" + known[8:]} {
		if _, err := apikey.Parse(s); err == nil {
			t.Errorf("parsed a key with another label: %s…", s[:8])
		}
		if !apikey.Mistyped(s) {
			t.Errorf("%s… does not count as mistyped", s[:8])
		}
	}
}

func TestParseReadsAKnownKey(t *testing.T) {
	key, err := apikey.Parse(known)
	if err != nil {
		t.Fatal(err)
	}
	if key.Reveal() != known {
		t.Error("Reveal is not the string that was parsed")
	}
	if got := key.ID(); got != keyID {
		t.Errorf("ID() = %q, want %q", got, keyID)
	}
	if got, want := key.Prefix(), "mk_live_abcdefgh2345_0123"; got != want {
		t.Errorf("Prefix() = %q, want %q", got, want)
	}
	if id, ok := apikey.IDOf(known); id != keyID || !ok {
		t.Errorf("IDOf() = %q, %v, want %q", id, ok, keyID)
	}
	if got, want := apikey.PrefixOf(known), key.Prefix(); got != want {
		t.Errorf("PrefixOf() = %q, want %q", got, want)
	}
	if got, want := key.Digest().Hex(), "549b7bbefdd30b3e2ea7560bf24bbbbeb20f89c923ba085222c0bf9459e774c7"; got != want {
		t.Errorf("Digest() = %s, want %s", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, s := range map[string]string{
		"nothing":                   "",
		"another label":             "sk_live_" + known[8:],
		"a label in upper case":     strings.ToUpper(known[:8]) + known[8:],
		"a key id in upper case":    known[:8] + strings.ToUpper(known[8:20]) + known[20:],
		"a digit base32 has not":    known[:8] + "abcdefgh2341" + known[20:],
		"no separator":              known[:20] + "-" + known[21:],
		"a secret with a separator": known[:30] + "_" + known[31:],
		"one character less":        known[:len(known)-1],
		"one character more":        known + "0",
		"a space before":            " " + known[:len(known)-1],
		"a newline after":           known + "\n",
		"a NUL within":              known[:30] + "\x00" + known[31:],
		"a letter of two bytes":     known[:30] + "é" + known[32:],
		"only the prefix":           known[:25],
		"exchanged neighbours":      known[:30] + known[31:32] + known[30:31] + known[32:],
		"a checksum of zeros":       known[:len(known)-6] + "000000",
		"a hundred thousand bytes":  strings.Repeat(known, 1500),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := apikey.Parse(s)
			if !errors.Is(err, apikey.ErrMalformed) {
				t.Fatalf("Parse: %v, want ErrMalformed", err)
			}
			if id, ok := apikey.IDOf(s); id != "" || ok {
				t.Errorf("IDOf() = %q, %v", id, ok)
			}
			if len(s) > 0 && strings.Contains(err.Error(), s) {
				t.Error("the error quotes what was presented")
			}
		})
	}
}

func TestNewRefusesWhatIsNoKeyID(t *testing.T) {
	for _, id := range []string{"", "abc", "abcdefgh23456", "ABCDEFGH2345", "abcdefgh2340", "abcdefgh234_", "abcdefgh23é"} {
		if _, err := apikey.New(id); err == nil {
			t.Errorf("New(%q) made a key", id)
		}
	}
}

func TestGeneratedKeysParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-z2-7]{12}`).Draw(t, "id")
		generate, isTest := apikey.New, rapid.Bool().Draw(t, "test")
		if isTest {
			generate = apikey.NewTest
		}
		made, err := generate(id)
		if err != nil {
			t.Fatal(err)
		}
		if apikey.IsTest(made.Reveal()) != isTest {
			t.Fatal("the label is of the other mode")
		}
		parsed, err := apikey.Parse(made.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		if parsed.ID() != id || parsed.Prefix() != made.Prefix() || !parsed.Digest().Equal(made.Digest()) {
			t.Fatal("the parsed key is not the one that was made")
		}
		if !apikey.Plausible(made.Reveal()) || len(made.Reveal()) != apikey.Length {
			t.Fatal("a generated key is not plausible")
		}
	})
}

func TestAnyChangedCharacterIsNoticed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		made, err := apikey.New(keyID)
		if err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(0, apikey.Length-1).Draw(t, "at")
		with := rapid.Byte().Draw(t, "with")
		changed := []byte(made.Reveal())
		if changed[at] == with {
			t.Skip("not a change")
		}
		changed[at] = with
		if _, err := apikey.Parse(string(changed)); err == nil {
			t.Fatalf("a changed character at %d went unnoticed", at)
		}
	})
}

func TestSecretsAreUniform(t *testing.T) {
	const keys, secret, alphabet = 4000, 32, 62
	counts := map[byte]int{}
	seen := map[string]bool{}
	for range keys {
		key, err := apikey.New(keyID)
		if err != nil {
			t.Fatal(err)
		}
		if seen[key.Reveal()] {
			t.Fatal("the same key was made twice")
		}
		seen[key.Reveal()] = true
		for _, c := range []byte(key.Reveal()[21 : 21+secret]) {
			counts[c]++
		}
	}
	if len(counts) != alphabet {
		t.Errorf("%d different characters are used, want %d", len(counts), alphabet)
	}
	// Each count has a standard deviation of about 45 around 2065; taking bytes modulo 62 would give
	// the first eight characters 435 more. At six deviations a false alarm comes once in 10⁸ runs.
	const mean, tolerance = keys * secret / alphabet, 300
	for c, n := range counts {
		if n < mean-tolerance || n > mean+tolerance {
			t.Errorf("%q occurs %d times, want %d±%d", c, n, mean, tolerance)
		}
	}
}

func TestPlausible(t *testing.T) {
	for _, tc := range []struct {
		desc string
		s    string
		want bool
	}{
		{"a generated key", known, true},
		{"the shortest", strings.Repeat("a", apikey.MinLength), true},
		{"too short", strings.Repeat("a", apikey.MinLength-1), false},
		{"the longest", strings.Repeat("~", apikey.MaxLength), true},
		{"too long", strings.Repeat("a", apikey.MaxLength+1), false},
		{"a space within", strings.Repeat("a", 20) + " " + strings.Repeat("a", 20), false},
		{"a control character within", strings.Repeat("a", 40) + "\x7f", false},
		{"a letter outside ASCII", strings.Repeat("é", 20), false},
		{"nothing", "", false},
	} {
		if got := apikey.Plausible(tc.s); got != tc.want {
			t.Errorf("%s: Plausible = %t, want %t", tc.desc, got, tc.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("")
	f.Add(known)
	f.Add(knownTest)
	f.Add(known[:len(known)-1])
	f.Add(known + known)
	f.Add("mk_live_")
	f.Add("mk_test_")
	f.Add(strings.Repeat("\x00", apikey.Length))
	f.Add(strings.Repeat("é", apikey.Length/2))
	f.Fuzz(func(t *testing.T, s string) {
		key, err := apikey.Parse(s)
		if err != nil {
			if !errors.Is(err, apikey.ErrMalformed) || key.Reveal() != "" {
				t.Fatalf("a refused string gives %q and %v", key.Reveal(), err)
			}
			return
		}
		if key.Reveal() != s || !apikey.Plausible(s) || key.Digest() != apikey.DigestOf(s) {
			t.Fatal("an accepted key is not the string that was read")
		}
		if !strings.HasPrefix(s, key.Prefix()) || !strings.Contains(key.Prefix(), key.ID()) {
			t.Fatalf("prefix %q does not name the key", key.Prefix())
		}
	})
}
