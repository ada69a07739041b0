//go:build gitops

package gitops

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

const (
	onboarding = "\n## From an empty cluster to fifty merchants\n"
	remote     = "https://git.example.com/platform"
	tableHead  = "| Commit | Kustomization | Seconds | What a person sees |\n|---|---|--:|---|\n"
)

func page(t *testing.T) string {
	t.Helper()
	return repository.Read(t, "docs", "gitops.md")
}

var block = regexp.MustCompile("(?s)```(sh|text)\n(.*?)```")

// runPage runs the commands of the section of the page, in order and in one shell, as a person who has Git and the cluster. The
// text after a command is its output; … stands for anything.
func (p *pipeline) runPage(t *testing.T) {
	t.Helper()
	_, section, _ := strings.Cut(page(t), onboarding)
	section, _, _ = strings.Cut(section, "\n## ")
	const end = "--- end of the commands"
	var script strings.Builder
	var want []string
	for _, found := range block.FindAllStringSubmatch(section, -1) {
		if found[1] == "text" {
			want[len(want)-1] = found[2]
			continue
		}
		fmt.Fprintf(&script, "%s\necho '%s'\n", found[2], end)
		want = append(want, "…")
	}
	if len(want) == 0 {
		t.Fatalf("docs/gitops.md has no commands below %q", onboarding)
	}
	bash := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail")
	bash.Dir, bash.Stdin = p.workDir, strings.NewReader(script.String())
	bash.Env = append(os.Environ(), "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"),
		"KUBECONFIG="+filepath.Join(p.Dir, "admin.kubeconfig"), "INSTALL_YAML="+filepath.Join(p.workDir, "install.yaml"))
	bash.Env = append(bash.Env, p.gitConfig()...)
	output, err := bash.CombinedOutput()
	if err != nil {
		seen, _ := p.Kubectl("", "get", "kustomizations", "--all-namespaces")
		t.Fatalf("the commands of the page: %v\n%s\n%s\n%s", err, output, seen, &p.flux.Logs)
	}
	for i, printed := range strings.Split(strings.TrimSuffix(string(output), end+"\n"), end+"\n") {
		if !matches(want[i], printed) {
			t.Fatalf("a command of the page prints\n%s\nwant\n%s", printed, want[i])
		}
	}
}

// gitConfig are variables for a Git that finds the page's repository here, and knows who commits.
func (p *pipeline) gitConfig() (variables []string) {
	settings := [][2]string{
		{"url." + p.flux.Remote + ".insteadOf", remote}, {"user.name", "Platform"}, {"user.email", "platform@example.com"},
		{"init.defaultBranch", "main"}, {"advice.detachedHead", "false"},
	}
	for i, setting := range settings {
		variables = append(variables, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, setting[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, setting[1]))
	}
	return append(variables, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(settings)))
}

// matches says whether an output is as the page shows it, apart from the width of columns.
func matches(want, output string) bool {
	parts := strings.Split(strings.Join(strings.Fields(want), " "), "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(strings.TrimSpace(part))
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(strings.Join(strings.Fields(output), " "))
}

// comparePage fails t if the table of the page is not that of this run, or replaces it. How long a sync took differs from run to run.
func comparePage(t *testing.T, table string) {
	t.Helper()
	before, rest, found := strings.Cut(page(t), tableHead)
	if !found {
		t.Fatalf("docs/gitops.md has no table that begins with\n%s", tableHead)
	}
	length := 0
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		length += len(line)
	}
	if *updatePage {
		if err := os.WriteFile(repository.Path("docs", "gitops.md"), []byte(before+tableHead+table+rest[length:]), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(withoutSeconds(rest[:length]), withoutSeconds(table)); diff != "" {
		t.Errorf("the table of docs/gitops.md is not what was seen (-page +seen); `make gitops PAGE=yes` updates it:\n%s", diff)
	}
}

var seconds = regexp.MustCompile(`\| \d+ \|`)

func withoutSeconds(table string) string { return seconds.ReplaceAllString(table, "| … |") }
