package login

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/test/proxytest"
)

// Many who sign in while the provider does not answer wait for one request to it, and then get an error that says so.
func TestSignIn_ProviderHangs(t *testing.T) {
	var asked atomic.Int64
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
	}))
	defer silent.Close()
	origin := &url.URL{Scheme: "http", Host: "127.0.0.1:8083"}
	h, err := New(Options{
		Origin: origin, Provider: ProviderOptions{IssuerURL: silent.URL}, Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler), Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.provider.http.Timeout = time.Second
	const people = 50
	var waiting sync.WaitGroup
	for range people {
		waiting.Go(func() {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, SignInPath, nil)
			if err := h.SignIn(httptest.NewRecorder(), request); !errors.Is(err, ErrProvider) {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	if asked.Load() > people/5 {
		t.Errorf("%d requests to the provider for %d people", asked.Load(), people)
	}
}

// A balancer in front of the provider forgets the console's connection. One sign-in fails, and the next one has a connection of its own.
func TestSignIn_ConnectionForgotten(t *testing.T) {
	proxytest.CheckForgotten(t, func(_, authority string) *http.Client {
		p, err := newProvider(ProviderOptions{CAFile: authority}, "")
		if err != nil {
			t.Fatal(err)
		}
		return p.http
	})
}

func TestClaims(t *testing.T) {
	const issuer = "https://id.example"
	for name, test := range map[string]struct {
		options ProviderOptions
		claims  map[string]any
		want    string // user and groups
	}{
		"default prefix":      {ProviderOptions{UsernameClaim: "sub"}, map[string]any{"sub": "a"}, "https://id.example#a"},
		"no prefix":           {ProviderOptions{UsernameClaim: "sub", UsernamePrefix: "-"}, map[string]any{"sub": "a"}, "a"},
		"email":               {ProviderOptions{UsernameClaim: "email"}, map[string]any{"email": "a@b"}, "a@b"},
		"verified email":      {ProviderOptions{UsernameClaim: "email"}, map[string]any{"email": "a@b", "email_verified": true}, "a@b"},
		"unverified email":    {ProviderOptions{UsernameClaim: "email"}, map[string]any{"email": "a@b", "email_verified": false}, ""},
		"verified as text":    {ProviderOptions{UsernameClaim: "email"}, map[string]any{"email": "a@b", "email_verified": "true"}, ""},
		"missing claim":       {ProviderOptions{UsernameClaim: "upn"}, map[string]any{"sub": "a"}, ""},
		"not a text":          {ProviderOptions{UsernameClaim: "sub"}, map[string]any{"sub": 7}, ""},
		"reserved":            {ProviderOptions{UsernameClaim: "sub", UsernamePrefix: "-"}, map[string]any{"sub": "system:admin"}, ""},
		"reserved by parts":   {ProviderOptions{UsernameClaim: "sub", UsernamePrefix: "sys"}, map[string]any{"sub": "tem:admin"}, ""},
		"a line break":        {ProviderOptions{UsernameClaim: "sub", UsernamePrefix: "-"}, map[string]any{"sub": "a\nb"}, ""},
		"groups":              {ProviderOptions{UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "g", GroupsPrefix: "x:"}, map[string]any{"sub": "a", "g": []any{"2", "1", 3}}, "a x:1 x:2"},
		"one group":           {ProviderOptions{UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "g"}, map[string]any{"sub": "a", "g": "1"}, "a 1"},
		"a reserved group":    {ProviderOptions{UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "g"}, map[string]any{"sub": "a", "g": []any{"system:masters", "1"}}, "a 1"},
		"groups not asked of": {ProviderOptions{UsernameClaim: "sub", UsernamePrefix: "-"}, map[string]any{"sub": "a", "groups": []any{"1"}}, "a"},
	} {
		test.options.IssuerURL = issuer
		p, err := test.options.person(test.claims)
		if got := strings.Join(append([]string{p.User}, p.Groups...), " "); got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: %q (%v), want %q", name, got, err, test.want)
		}
	}
}

// Who may choose their own groups and names fills no Redis: all logins of a person take less than 2 MB.
func TestClaims_Large(t *testing.T) {
	options := ProviderOptions{UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "g"}
	for name, letter := range map[string]string{"letters": "x", "letters that JSON escapes": "\x01"} {
		var groups []any
		for n := range 5000 {
			groups = append(groups, fmt.Sprint(n, strings.Repeat(letter, 240)))
		}
		long := strings.Repeat("n", 1<<20)
		p, err := options.person(map[string]any{"sub": "a", "name": long, "g": append(groups, long)})
		if err != nil || len(p.Groups) == 0 {
			t.Fatalf("%s: %d groups, %v", name, len(p.Groups), err)
		}
		record, err := json.Marshal(p)
		if err != nil || maxLogins*len(record) > 2e6 {
			t.Errorf("%s: a login takes %d bytes (%v)", name, len(record), err)
		}
	}
	options.UsernameClaim = "email"
	if _, err := options.person(map[string]any{"email": "a@b", "sub": strings.Repeat("s", 1<<20)}); !errors.Is(err, ErrClaims) {
		t.Errorf("a sub of a megabyte: %v", err)
	}
}
