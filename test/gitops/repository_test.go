//go:build gitops

package gitops

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// clone is the directory that the page's commands have made.
func (p *pipeline) clone() string { return filepath.Join(p.workDir, "platform") }

// git runs a Git command in the clone.
func (s step) git(arguments ...string) {
	s.T.Helper()
	git := exec.CommandContext(s.T.Context(), "git", arguments...)
	git.Dir, git.Env = s.clone(), append(os.Environ(), s.gitConfig()...)
	if output, err := git.CombinedOutput(); err != nil {
		s.T.Fatalf("git %v: %v\n%s", arguments, err, output)
	}
}

func (p *pipeline) manifest(shop string) string {
	return filepath.Join(p.clone(), "merchants", shop+".yaml")
}

// edit replaces a text, which has to be there once, in the manifests of a shop.
func (s step) edit(shop, old, replacement string) {
	s.T.Helper()
	content, err := os.ReadFile(s.manifest(shop))
	if err != nil {
		s.T.Fatal(err)
	}
	if strings.Count(string(content), old) != 1 {
		s.T.Fatalf("%s does not have %q once:\n%s", shop, old, content)
	}
	s.write(shop, strings.Replace(string(content), old, replacement, 1))
}

// setMerchant adds a field, which is a line, to the spec of the Merchant of a shop.
func (s step) setMerchant(shop, field string) {
	s.T.Helper()
	s.edit(shop, "  displayName: ", "  "+field+"\n  displayName: ")
}

// setKey adds a field, which is a line, to the spec of the ApiKey of a shop.
func (s step) setKey(shop, field string) {
	s.T.Helper()
	s.edit(shop, "  merchantRef: ", "  "+field+"\n  merchantRef: ")
}

// unset removes a field, which is a line, of the Merchant or the ApiKey of a shop.
func (s step) unset(shop, field string) {
	s.T.Helper()
	s.edit(shop, "  "+field+"\n", "")
}

// removeKey removes the ApiKey of a shop, which is the second of its manifests.
func (s step) removeKey(shop string) {
	s.T.Helper()
	content, err := os.ReadFile(s.manifest(shop))
	if err != nil {
		s.T.Fatal(err)
	}
	merchant, _, found := strings.Cut(string(content), "---\n")
	if !found {
		s.T.Fatalf("%s has one manifest:\n%s", shop, content)
	}
	s.write(shop, merchant)
}

// remove removes all manifests of a shop.
func (s step) remove(shop string) {
	s.T.Helper()
	if err := os.Remove(s.manifest(shop)); err != nil {
		s.T.Fatal(err)
	}
}

func (s step) write(shop, content string) {
	s.T.Helper()
	if err := os.WriteFile(s.manifest(shop), []byte(content), 0o600); err != nil {
		s.T.Fatal(err)
	}
}

// push commits everything and pushes it.
func (s step) push(message string) {
	s.T.Helper()
	s.git("add", "--all")
	s.git("commit", "--quiet", "--message", message)
	s.git("push", "--quiet", "origin", "HEAD:main")
}
