package oidctest

import (
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// NodeProvider is oidc-provider of npm: an OpenID provider that we did not write. It knows everybody, with any password.
type NodeProvider struct{ Issuer string }

// StartNode runs the provider until the end of the test. Users are in these groups.
func StartNode(t testing.TB, groups map[string][]string) *NodeProvider {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(repository.Path("test", "oidctest", "node"))); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
	install.Dir = dir
	if output, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install oidc-provider: %v; run `hack/install.sh nodejs` if npm is missing\n%s", err, output)
	}
	port, err := freeport.Choose()
	if err != nil {
		t.Fatal(err)
	}
	arguments, err := json.Marshal(map[string]any{
		"port": port, "clientID": ClientID, "clientSecret": ClientSecret, "redirectURL": "http://127.0.0.1/callback", "groups": groups,
	})
	if err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "provider.js"), string(arguments))
	var log strings.Builder
	program.Stdout, program.Stderr = &log, &log
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = program.Wait() // killed
		if t.Failed() {
			t.Logf("oidc-provider: %s", &log)
		}
	})
	p := &NodeProvider{fmt.Sprintf("http://127.0.0.1:%d", port)}
	await.Until(t, patience, "oidc-provider answers", func() bool { return answers(p.Issuer) })
	return p
}

var (
	formAction   = regexp.MustCompile(`<form[^>]* action="([^"]+)"`)
	hiddenPrompt = regexp.MustCompile(`name="prompt" value="([^"]+)"`)
)

// SignIn opens a page of a console, and fills in the provider's forms: first the login, then the consent, if it asks.
func (p *NodeProvider) SignIn(t testing.TB, b Browser, address, user string) Page {
	t.Helper()
	page := b.Get(t, address)
	const forms = 2
	for range forms {
		action, prompt := formAction.FindStringSubmatch(page.Text), hiddenPrompt.FindStringSubmatch(page.Text)
		if !strings.HasPrefix(page.URL.String(), p.Issuer) || action == nil || prompt == nil {
			break
		}
		page = b.Post(t, html.UnescapeString(action[1]), url.Values{"prompt": {prompt[1]}, "login": {user}, "password": {"any"}})
	}
	return page
}
