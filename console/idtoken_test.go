package console

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// liar is an OpenID provider whose ID tokens are what a test says.
type liar struct {
	*httptest.Server

	key   *rsa.PrivateKey
	token string
}

func startLiar(t *testing.T) *liar {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{key: key}
	mux := http.NewServeMux()
	respond := func(path string, body func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(body())
		})
	}
	respond("/.well-known/openid-configuration", func() any {
		return map[string]any{
			"issuer": l.URL, "authorization_endpoint": l.URL + "/authorize", "token_endpoint": l.URL + "/token", "jwks_uri": l.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		}
	})
	respond("/keys", func() any {
		return map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": encode(key.N.Bytes()), "e": "AQAB",
		}}}
	})
	respond("/token", func() any {
		return map[string]any{"access_token": "a", "token_type": "Bearer", "expires_in": 60, "id_token": l.token}
	})
	l.Server = httptest.NewServer(mux)
	t.Cleanup(l.Close)
	return l
}

func encode(content []byte) string { return base64.RawURLEncoding.EncodeToString(content) }

// sign makes a token of claims. A test may change the algorithm and the signature.
func (l *liar) sign(t *testing.T, algorithm string, claims map[string]any, sign func(digest []byte, text string) []byte) string {
	t.Helper()
	header := fmt.Sprintf(`{"alg":%q,"kid":"1"}`, algorithm)
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	text := encode([]byte(header)) + "." + encode(body)
	digest := sha256.Sum256([]byte(text))
	return text + "." + encode(sign(digest[:], text))
}

func signedWith(t *testing.T, key *rsa.PrivateKey) func([]byte, string) []byte {
	t.Helper()
	return func(digest []byte, _ string) []byte {
		signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest)
		if err != nil {
			t.Error(err)
		}
		return signature
	}
}

// An ID token counts if it was made by the provider, for the console, for this sign-in, and not long ago.
func TestIDTokens(t *testing.T) {
	l := startLiar(t)
	f := newFixture(t, func(o *Options) { o.Provider.IssuerURL = l.URL })
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := signedWith(t, l.key)
	for name, test := range map[string]struct {
		algorithm string
		sign      func([]byte, string) []byte
		changed   map[string]any
		want      int
	}{
		"good":              {"RS256", good, nil, http.StatusOK},
		"another nonce":     {"RS256", good, map[string]any{"nonce": "of another sign-in"}, http.StatusBadRequest},
		"no nonce":          {"RS256", good, map[string]any{"nonce": nil}, http.StatusBadRequest},
		"another client":    {"RS256", good, map[string]any{"aud": "another"}, http.StatusBadRequest},
		"another issuer":    {"RS256", good, map[string]any{"iss": "https://evil.example"}, http.StatusBadRequest},
		"expired":           {"RS256", good, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, http.StatusBadRequest},
		"another key":       {"RS256", signedWith(t, other), nil, http.StatusBadRequest},
		"not signed":        {"none", func([]byte, string) []byte { return nil }, nil, http.StatusBadRequest},
		"the client secret": {"HS256", mac, nil, http.StatusBadRequest},
		"reserved name":     {"RS256", good, map[string]any{"sub": "a\u0000b"}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			browser := oidctest.NewBrowser(t)
			browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
				if strings.HasPrefix(r.URL.String(), l.URL) {
					return http.ErrUseLastResponse
				}
				return nil
			}
			begun := parse(t, browser.Get(t, f.URL+"/sign-in").Header.Get("Location")).Query()
			claims := map[string]any{
				"iss": l.URL, "aud": oidctest.ClientID, "sub": "alice", "nonce": begun.Get("nonce"),
				"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
			}
			maps.Copy(claims, test.changed)
			l.token = l.sign(t, test.algorithm, claims, test.sign)
			page := browser.Get(t, f.URL+login.CallbackPath+"?"+url.Values{"code": {"c"}, "state": {begun.Get("state")}}.Encode())
			signedIn := cookieOf(t, f, browser, loginCookie).Value != ""
			if page.Status != test.want || signedIn != (test.want == http.StatusOK) {
				t.Errorf("%d, signed in: %v: %s", page.Status, signedIn, page.Text)
			}
		})
	}
}

func mac(_ []byte, text string) []byte {
	sum := hmac.New(sha256.New, []byte(oidctest.ClientSecret))
	_, _ = sum.Write([]byte(text))
	return sum.Sum(nil)
}
