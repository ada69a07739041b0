package apikey_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

func FuzzParse(f *testing.F) {
	f.Add("")
	f.Add(known)
	f.Add(known[:len(known)-1])
	f.Add(known + known)
	f.Add("mk_live_")
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
