package apikey_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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

func TestParse_KnownTestKey(t *testing.T) {
	key, err := apikey.Parse(knownTest)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := apikey.ParseID(knownTest); id != keyID || !ok || key.ID() != keyID {
		t.Errorf("ParseID() = %q, %v, ID() = %q, want %q", id, ok, key.ID(), keyID)
	}
	if got, want := key.Prefix(), "mk_test_abcdefgh2345_0123"; got != want {
		t.Errorf("Prefix() = %q, want %q", got, want)
	}
	if !apikey.IsTest(knownTest) || apikey.IsTest(known) {
		t.Error("IsTest does not distinguish a test key from a live one")
	}
}

// The checksum covers the label: a test key cannot be written as a live one.
func TestParse_AnotherLabel(t *testing.T) {
	for _, s := range []string{"mk_live_" + knownTest[8:], "mk_test_" + known[8:]} {
		if _, err := apikey.Parse(s); err == nil {
			t.Errorf("parsed a key with another label: %s…", s[:8])
		}
		if !apikey.Mistyped(s) {
			t.Errorf("%s… does not count as mistyped", s[:8])
		}
	}
}

func TestParse_KnownKey(t *testing.T) {
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
	if id, ok := apikey.ParseID(known); id != keyID || !ok {
		t.Errorf("ParseID() = %q, %v, want %q", id, ok, keyID)
	}
	if got, want := apikey.Prefix(known), key.Prefix(); got != want {
		t.Errorf("Prefix() = %q, want %q", got, want)
	}
	if got, want := key.Digest().Hex(), "549b7bbefdd30b3e2ea7560bf24bbbbeb20f89c923ba085222c0bf9459e774c7"; got != want {
		t.Errorf("Digest() = %s, want %s", got, want)
	}
}

func TestParse_Malformed(t *testing.T) {
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
			if id, ok := apikey.ParseID(s); id != "" || ok {
				t.Errorf("ParseID() = %q, %v", id, ok)
			}
			if len(s) > 0 && strings.Contains(err.Error(), s) {
				t.Error("the error quotes what was presented")
			}
		})
	}
}

func TestNew_InvalidKeyID(t *testing.T) {
	for _, id := range []string{"", "abc", "abcdefgh23456", "ABCDEFGH2345", "abcdefgh2340", "abcdefgh234_", "abcdefgh23é"} {
		if _, err := apikey.New(id); err == nil {
			t.Errorf("New(%q) made a key", id)
		}
	}
}

// Generated keys parse.
func TestNew_Parses(t *testing.T) {
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

// Any changed character is noticed.
func TestParse_AnyChangedCharacter(t *testing.T) {
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

func TestNew_UniformSecrets(t *testing.T) {
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
		if key.Reveal() != s || !apikey.Plausible(s) || key.Digest() != apikey.NewDigest(s) {
			t.Fatal("an accepted key is not the string that was read")
		}
		if !strings.HasPrefix(s, key.Prefix()) || !strings.Contains(key.Prefix(), key.ID()) {
			t.Fatalf("prefix %q does not name the key", key.Prefix())
		}
	})
}

func TestNewDigest_SHA256(t *testing.T) {
	// FIPS 180-2, appendix B.1.
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if got := apikey.NewDigest("abc").Hex(); got != abc {
		t.Errorf("NewDigest(abc) = %s, want %s", got, abc)
	}
}

// A caller presents as much as fits into a header.
func TestNewDigest_AnyLength(t *testing.T) {
	for length := range 2 * apikey.MaxLength {
		presented := strings.Repeat("k", length)
		if apikey.NewDigest(presented) != sha256.Sum256([]byte(presented)) {
			t.Fatalf("the digest of %d characters is not their SHA-256", length)
		}
	}
}

func TestParseDigest(t *testing.T) {
	valid := strings.Repeat("0123456789abcdef", 4)
	digest, err := apikey.ParseDigest(valid)
	if err != nil {
		t.Fatal(err)
	}
	if digest.Hex() != valid || digest.IsZero() {
		t.Error("the parsed digest is not the one that was written")
	}
	for name, s := range map[string]string{
		"nothing":               "",
		"a digit less":          valid[1:],
		"a digit more":          valid + "0",
		"upper case":            strings.ToUpper(valid),
		"a letter beyond f":     "g" + valid[1:],
		"a prefix":              "0x" + valid[2:],
		"spaces around":         " " + valid[2:] + " ",
		"a letter of two bytes": "é" + valid[2:],
	} {
		digest, err := apikey.ParseDigest(s)
		if !errors.Is(err, apikey.ErrBadDigest) || !digest.IsZero() {
			t.Errorf("%s: ParseDigest = %v, %v; want nothing and ErrBadDigest", name, digest.IsZero(), err)
		}
	}
}

func TestDigest_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		digest := apikey.NewDigest(rapid.String().Draw(t, "presented"))
		text, err := json.Marshal(digest)
		if err != nil {
			t.Fatal(err)
		}
		var read apikey.Digest
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if !read.Equal(digest) || read != digest {
			t.Fatal("the digest that was read is not the one that was written")
		}
	})
}

func TestDigest_Equal(t *testing.T) {
	one, other := apikey.NewDigest("one"), apikey.NewDigest("other")
	if one.Equal(other) || !one.Equal(one) {
		t.Error("Equal does not compare")
	}
	if one.IsZero() || !(apikey.Digest{}).IsZero() {
		t.Error("IsZero does not distinguish a missing digest from one that is set")
	}
}

// A bad text leaves the digest as it was.
func TestDigest_UnmarshalBadText(t *testing.T) {
	digest := apikey.NewDigest("one")
	if err := digest.UnmarshalText([]byte(strings.Repeat("0", 63) + "g")); err == nil {
		t.Fatal("a bad text was read")
	}
	if !digest.Equal(apikey.NewDigest("one")) {
		t.Error("a bad text changed the digest")
	}
}

// holder is what a careless caller might log: a struct with the value in it, exported or not.
type holder struct {
	Key    apikey.Key
	Digest apikey.Digest
	key    apikey.Key
}

// Keys and digests do not leak when they are printed.
func TestLeak_Printed(t *testing.T) {
	key, digest := knownKey(t)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c", "%U", "% x", "%10.80s"} {
		for name, value := range map[string]any{
			"key": key, "key pointer": &key, "keys": []apikey.Key{key}, "digest": digest,
			"digest pointer": &digest, "digests": map[string]apikey.Digest{"d": digest},
			"holder": holder{Key: key, Digest: digest, key: key},
		} {
			assertNoLeak(t, fmt.Sprintf("fmt %s of %s", verb, name), fmt.Sprintf(verb, value))
		}
	}
	assertNoLeak(t, "Sprint", fmt.Sprint(key, digest))
	assertNoLeak(t, "a wrapping error", errors.Join(fmt.Errorf("with %v and %v", key, digest)).Error())
}

// Keys and digests do not leak when they are logged.
func TestLeak_Logged(t *testing.T) {
	key, digest := knownKey(t)
	var out bytes.Buffer
	options := &slog.HandlerOptions{AddSource: true, Level: slog.LevelDebug}
	for _, logger := range []*slog.Logger{
		slog.New(slog.NewTextHandler(&out, options)),
		slog.New(slog.NewJSONHandler(&out, options)),
	} {
		logger.With("key", key, "digest", digest).Info("message", "key", &key, "digest", &digest)
		logger.Info("message", slog.Group("group", "key", key, "digest", digest))
		logger.Info("message", "keys", []apikey.Key{key}, "unexported", holder{key: key})
	}
	if out.Len() == 0 {
		t.Fatal("nothing was logged")
	}
	assertNoLeak(t, "slog", out.String())
}

// Keys do not leak when they are encoded.
func TestLeak_Encoded(t *testing.T) {
	key, _ := knownKey(t)
	for name, value := range map[string]any{"key": key, "pointer": &key, "map": map[string]apikey.Key{"key": key}} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		assertNoLeak(t, "json of "+name, string(text))
	}
}

func TestKey_PrintsItsPrefix(t *testing.T) {
	key, _ := knownKey(t)
	if got, want := fmt.Sprint(key), key.Prefix()+"…"; got != want {
		t.Errorf("a key prints as %q, want %q", got, want)
	}
}

func TestKey_Zero(t *testing.T) {
	var key apikey.Key
	if key.Reveal() != "" || key.ID() != "" || key.Prefix() != "" || fmt.Sprint(key) != "no key" {
		t.Errorf("the zero Key reads %q, %q, %q, %v", key.Reveal(), key.ID(), key.Prefix(), key)
	}
}

func knownKey(t *testing.T) (apikey.Key, apikey.Digest) {
	t.Helper()
	key, err := apikey.Parse(known)
	if err != nil {
		t.Fatal(err)
	}
	return key, key.Digest()
}

// assertNoLeak looks for every spelling a verb could give the secret or the digest.
func assertNoLeak(t *testing.T, where, printed string) {
	t.Helper()
	secret := known[25:]
	digest := apikey.NewDigest(known)
	raw := digest[:]
	for what, text := range map[string]string{
		"the secret":               secret,
		"the secret in hex":        fmt.Sprintf("%x", secret),
		"the secret in spaced hex": fmt.Sprintf("% x", secret),
		"the secret as bytes":      strings.Trim(fmt.Sprint([]byte(secret)), "[]"),
		"the digest in hex":        digest.Hex(),
		"the digest's bytes":       string(raw),
		"the digest in spaced hex": fmt.Sprintf("% x", raw),
		"the digest as numbers":    strings.Trim(fmt.Sprint(raw), "[]"),
	} {
		if strings.Contains(strings.ToLower(printed), strings.ToLower(text)) {
			t.Errorf("%s shows %s: %s", where, what, printed)
		}
	}
}

func newKey(b *testing.B) string {
	b.Helper()
	key, err := apikey.New("abcdefghijkl")
	if err != nil {
		b.Fatal(err)
	}
	return key.Reveal()
}

func BenchmarkPlausible(b *testing.B) {
	presented := newKey(b)
	b.ReportAllocs()
	for b.Loop() {
		if !apikey.Plausible(presented) {
			b.Fatal("not plausible")
		}
	}
}

func BenchmarkNewDigest(b *testing.B) {
	presented := newKey(b)
	b.ReportAllocs()
	for b.Loop() {
		_ = apikey.NewDigest(presented)
	}
}

func BenchmarkParse(b *testing.B) {
	good := newKey(b)
	typo := good[:30] + "_" + good[31:]
	wrongSum := good[:len(good)-1] + "!"
	for _, presented := range []struct{ name, key string }{{"key=good", good}, {"key=typo", typo}, {"key=wrong-checksum", wrongSum}} {
		b.Run(presented.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = apikey.Parse(presented.key)
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := apikey.New("abcdefghijkl"); err != nil {
			b.Fatal(err)
		}
	}
}
