package apikey_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

func TestDigestIsSHA256(t *testing.T) {
	// FIPS 180-2, appendix B.1.
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if got := apikey.DigestOf("abc").Hex(); got != abc {
		t.Errorf("DigestOf(abc) = %s, want %s", got, abc)
	}
}

// A caller presents as much as fits into a header.
func TestDigestOfAnyLength(t *testing.T) {
	for length := range 2 * apikey.MaxLength {
		presented := strings.Repeat("k", length)
		if apikey.DigestOf(presented) != sha256.Sum256([]byte(presented)) {
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

func TestDigestsSurviveTheirTextForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		digest := apikey.DigestOf(rapid.String().Draw(t, "presented"))
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

func TestDigestsOfDifferentStringsDiffer(t *testing.T) {
	one, other := apikey.DigestOf("one"), apikey.DigestOf("other")
	if one.Equal(other) || !one.Equal(one) {
		t.Error("Equal does not compare")
	}
	if one.IsZero() || !(apikey.Digest{}).IsZero() {
		t.Error("IsZero does not tell a missing digest from one that is there")
	}
}

func TestABadTextLeavesTheDigestAsItWas(t *testing.T) {
	digest := apikey.DigestOf("one")
	if err := digest.UnmarshalText([]byte(strings.Repeat("0", 63) + "g")); err == nil {
		t.Fatal("a bad text was read")
	}
	if !digest.Equal(apikey.DigestOf("one")) {
		t.Error("a bad text changed the digest")
	}
}
