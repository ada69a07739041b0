// Package oidctest runs the OpenID provider of hack/oidc for tests, as its own process, and signs people in as a browser does.
package oidctest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// User is a person at the provider.
type User struct {
	Username string   `json:"username"`
	Password string   `json:"password"`
	Email    string   `json:"email"`
	Name     string   `json:"name"`
	Groups   []string `json:"groups"`
}

// What the client is called at every Provider, and the only place where it may be: a loopback address, on any port.
const (
	ClientID     = "console"
	ClientSecret = "secret of the console"
	redirectURL  = "http://127.0.0.1/callback,https://console.example/callback"
)

const patience = 60 * time.Second

// Provider is a running provider, or one that was stopped.
type Provider struct {
	Issuer string

	program, users, address string
	process                 *exec.Cmd
}

// New starts a provider that belongs to no test, for TestMain: the caller runs stop when the tests are over.
func New(directory string, users ...User) (p *Provider, stop func() error, err error) {
	p = &Provider{program: filepath.Join(directory, "oidc"), users: filepath.Join(directory, "users.json")}
	text, err := json.Marshal(users)
	if err == nil {
		err = errors.Join(os.WriteFile(p.users, text, 0o600), repository.Build(p.program, "hack/oidc"))
	}
	if err != nil {
		return nil, func() error { return nil }, err
	}
	return p.Another()
}

// Another starts a provider with the same people. It belongs to no test either.
func (p *Provider) Another() (another *Provider, stop func() error, err error) {
	port, err := freeport.Choose()
	if err != nil {
		return nil, func() error { return nil }, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	another = &Provider{Issuer: "http://" + address, address: address, program: p.program, users: p.users}
	err = another.Start()
	return another, another.Stop, err
}

// Start starts the provider again, at the same address, with a new signing key.
func (p *Provider) Start() error {
	p.process = exec.Command(p.program, "--address", p.address, "--users", p.users, "--client-id", ClientID, "--client-secret", ClientSecret, "--redirect-urls", redirectURL)
	p.process.Stdout, p.process.Stderr = os.Stderr, os.Stderr
	if err := p.process.Start(); err != nil {
		return fmt.Errorf("start the OpenID provider: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if answers(p.Issuer) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("the OpenID provider did not start"), p.Stop())
		case <-tick.C:
		}
	}
}

func answers(issuer string) bool {
	answer, err := http.Get(issuer + "/.well-known/openid-configuration")
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}

// Stop stops the provider.
func (p *Provider) Stop() error {
	if p.process == nil {
		return nil
	}
	_ = p.process.Process.Kill()
	_ = p.process.Wait() // killed
	p.process = nil
	return nil
}

// Browser keeps cookies and follows redirects.
type Browser struct{ *http.Client }

// NewBrowser returns a browser without cookies.
func NewBrowser(t testing.TB) Browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return Browser{&http.Client{Jar: jar, Timeout: patience}}
}

// Page is an answer, with the address that redirects have led to.
type Page struct {
	Status int
	Header http.Header
	URL    *url.URL
	Text   string
}

// Hidden is the value of a hidden field of the page's form; empty: there is none.
func (p Page) Hidden(name string) string {
	if found := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(p.Text); found != nil {
		return found[1]
	}
	return ""
}

var shownKey = regexp.MustCompile(`<pre[^>]* data-secret[^>]*>(mk_(?:live|test)_[0-9A-Za-z_]+)</pre>`)

// Key is the API key that a page of the console shows; empty: none.
func (p Page) Key() string {
	if found := shownKey.FindStringSubmatch(p.Text); found != nil {
		return found[1]
	}
	return ""
}

// Get gets a page.
func (b Browser) Get(t testing.TB, address string) Page {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return b.Do(t, request)
}

// Post sends a form as a page of the same origin would.
func (b Browser) Post(t testing.TB, address string, form url.Values) Page {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Sec-Fetch-Site", "same-origin")
	return b.Do(t, request)
}

// Do sends a request.
func (b Browser) Do(t testing.TB, request *http.Request) Page {
	t.Helper()
	answer, err := b.Client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Page{answer.StatusCode, answer.Header, answer.Request.URL, string(text)}
}

// SignIn opens a page of a console, enters the password at the provider, and returns where that leads.
func (p *Provider) SignIn(t testing.TB, b Browser, address string, user User) Page {
	t.Helper()
	page := b.Get(t, address)
	if !strings.HasPrefix(page.URL.String(), p.Issuer+"/authorize?") {
		t.Fatalf("%s leads to %s with %d, not to the provider: %s", address, page.URL, page.Status, page.Text)
	}
	return b.Post(t, page.URL.String(), url.Values{"username": {user.Username}, "password": {user.Password}})
}
