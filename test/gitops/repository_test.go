//go:build gitops

package gitops

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// clone is the directory that the page's commands have made.
func (p *pipeline) clone() string { return filepath.Join(p.workDir, "platform") }

// git runs a Git command in the clone.
func (p *pipeline) git(t *testing.T, arguments ...string) {
	t.Helper()
	git := exec.CommandContext(t.Context(), "git", arguments...)
	git.Dir, git.Env = p.clone(), append(os.Environ(), p.gitConfig()...)
	if output, err := git.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", arguments, err, output)
	}
}

func (p *pipeline) manifest(shop string) string {
	return filepath.Join(p.clone(), "merchants", shop+".yaml")
}

// edit replaces a text, which has to be there once, in the manifests of a shop.
func (p *pipeline) edit(t *testing.T, shop, old, replacement string) {
	t.Helper()
	content, err := os.ReadFile(p.manifest(shop))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(content), old) != 1 {
		t.Fatalf("%s does not have %q once:\n%s", shop, old, content)
	}
	p.write(t, shop, strings.Replace(string(content), old, replacement, 1))
}

// setMerchant adds a field, which is a line, to the spec of the Merchant of a shop.
func (p *pipeline) setMerchant(t *testing.T, shop, field string) {
	t.Helper()
	p.edit(t, shop, "  displayName: ", "  "+field+"\n  displayName: ")
}

// setKey adds a field, which is a line, to the spec of the ApiKey of a shop.
func (p *pipeline) setKey(t *testing.T, shop, field string) {
	t.Helper()
	p.edit(t, shop, "  merchantRef: ", "  "+field+"\n  merchantRef: ")
}

// unset removes a field, which is a line, of the Merchant or the ApiKey of a shop.
func (p *pipeline) unset(t *testing.T, shop, field string) {
	t.Helper()
	p.edit(t, shop, "  "+field+"\n", "")
}

// removeKey removes the ApiKey of a shop, which is the second of its manifests.
func (p *pipeline) removeKey(t *testing.T, shop string) {
	t.Helper()
	content, err := os.ReadFile(p.manifest(shop))
	if err != nil {
		t.Fatal(err)
	}
	merchant, _, found := strings.Cut(string(content), "---\n")
	if !found {
		t.Fatalf("%s has one manifest:\n%s", shop, content)
	}
	p.write(t, shop, merchant)
}

// remove removes all manifests of a shop.
func (p *pipeline) remove(t *testing.T, shop string) {
	t.Helper()
	if err := os.Remove(p.manifest(shop)); err != nil {
		t.Fatal(err)
	}
}

func (p *pipeline) write(t *testing.T, shop, content string) {
	t.Helper()
	if err := os.WriteFile(p.manifest(shop), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// push commits everything and pushes it.
func (p *pipeline) push(t *testing.T, message string) {
	t.Helper()
	p.git(t, "add", "--all")
	p.git(t, "commit", "--quiet", "--message", message)
	p.git(t, "push", "--quiet", "origin", "HEAD:main")
}
