package apikey_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/apikey"
)

// holder is what a careless caller might log: a struct with the value in it, exported or not.
type holder struct {
	Key    apikey.Key
	Digest apikey.Digest
	key    apikey.Key
}

func TestKeysAndDigestsDoNotLeakWhenPrinted(t *testing.T) {
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

func TestKeysAndDigestsDoNotLeakWhenLogged(t *testing.T) {
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

func TestKeysDoNotLeakWhenEncoded(t *testing.T) {
	key, _ := knownKey(t)
	for name, value := range map[string]any{"key": key, "pointer": &key, "map": map[string]apikey.Key{"key": key}} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		assertNoLeak(t, "json of "+name, string(text))
	}
}

func TestPrintingShowsThePrefix(t *testing.T) {
	key, _ := knownKey(t)
	if got, want := fmt.Sprint(key), key.Prefix()+"…"; got != want {
		t.Errorf("a key prints as %q, want %q", got, want)
	}
}

func TestTheZeroKeyIsNoKey(t *testing.T) {
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
	digest := apikey.DigestOf(known)
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
