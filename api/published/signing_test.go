package published_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/published"
)

func TestParseSigningSecret(t *testing.T) {
	encoded := func(size int) string {
		return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, size))
	}
	for _, good := range []string{signingNow, encoded(24), encoded(32), encoded(64)} {
		secret, err := published.ParseSigningSecret(good)
		if err != nil || secret.Reveal() != good {
			t.Errorf("%q reads as %q, %v", good, secret.Reveal(), err)
		}
	}
	for desc, bad := range map[string]string{
		"nothing":            "",
		"the label alone":    "whsec_",
		"no label":           strings.TrimPrefix(signingNow, "whsec_"),
		"another label":      "whpk_" + strings.TrimPrefix(signingNow, "whsec_"),
		"too short":          encoded(23),
		"too long":           encoded(65),
		"no padding":         strings.TrimRight(signingNow, "="),
		"the URL's alphabet": strings.ReplaceAll(encoded(32), "+", "-"),
		"a line break":       signingNow[:20] + "\n" + signingNow[20:],
		"spaces around":      " " + signingNow + " ",
		"loose bits":         signingNow[:len(signingNow)-2] + "9=",
	} {
		secret, err := published.ParseSigningSecret(bad)
		if !errors.Is(err, published.ErrMalformedSecret) || !secret.IsZero() {
			t.Errorf("%s reads as %q, %v", desc, secret.Reveal(), err)
		}
	}
}

func TestSigningSecret_Key(t *testing.T) {
	secret := signingSecret(signingNow)
	secret.Key()[0] = 0xff
	if secret.Reveal() != signingNow {
		t.Error("a change of the returned bytes changed the secret")
	}
	if !secret.Equal(signingSecret(signingNow)) || secret.Equal(signingSecret(signingBefore)) || secret.Equal(published.SigningSecret{}) {
		t.Error("Equal does not compare the bytes")
	}
	var none published.SigningSecret
	if none.Reveal() != "" || none.Key() != nil || !none.Equal(published.SigningSecret{}) {
		t.Error("the zero SigningSecret is not none")
	}
}

// secretHolder is what a careless caller might log: a struct with the secret in it, exported or not.
type secretHolder struct {
	Secret published.SigningSecret
	secret published.SigningSecret
}

func TestSigningSecret_Leak(t *testing.T) {
	secret, record := signingSecret(signingNow), webhookRecord()
	values := map[string]any{
		"secret": secret, "pointer": &secret, "list": []published.SigningSecret{secret},
		"holder": secretHolder{Secret: secret, secret: secret}, "record": record, "record pointer": &record,
	}
	var printed bytes.Buffer
	for name, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "% x"} {
			fmt.Fprintf(&printed, "%s "+verb+"\n", name, value)
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		printed.Write(text)
		for _, logger := range []*slog.Logger{slog.New(slog.NewTextHandler(&printed, nil)), slog.New(slog.NewJSONHandler(&printed, nil))} {
			logger.With("with", value).Info("message", "value", value, slog.Group("group", "value", value))
		}
	}
	for _, spelt := range []string{signingNow, signingBefore} {
		key := signingSecret(spelt).Key()
		for what, text := range map[string]string{
			"the secret":         strings.TrimPrefix(spelt, "whsec_")[:12],
			"its bytes":          string(key),
			"in hex":             fmt.Sprintf("%x", key),
			"in loose hex":       fmt.Sprintf("% x", key[:8]),
			"as numbers":         strings.Trim(fmt.Sprint(key[:8]), "[]"),
			"in hex of the text": fmt.Sprintf("%x", spelt[:12]),
		} {
			if strings.Contains(strings.ToLower(printed.String()), strings.ToLower(text)) {
				t.Errorf("%s is printed", what)
			}
		}
	}
	if !strings.Contains(printed.String(), "[signing secret]") {
		t.Error("nothing says that there is a secret")
	}
}
