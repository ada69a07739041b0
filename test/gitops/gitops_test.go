//go:build gitops

package gitops

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/test/fluxtest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// line is a row of the table: what was committed, how the sync ended, and what else a person sees.
type line struct {
	commit string
	result fluxtest.Result
	sees   string
}

// change is something that a pipeline does, and ends as it began but for its own shop: the Kustomization is Ready.
type change struct {
	name string
	try  func(s step) []line
}

// step is a change that is being tried. What it does not get fails the test.
type step struct {
	*pipeline

	T *testing.T
}

// changes are in the order of the table. Each has shops of its own.
func changes() []change {
	return slices.Concat(rotations(), states(), allowlists(), mistakes(), deletions(), recoveries())
}

// TestGitOps starts with the commands of the page and then tries each change, one after the other: they share the repository.
func TestGitOps(t *testing.T) {
	deployed := make(chan error, 1)
	go func() { deployed <- shared.runDeployments(context.Background()) }()
	if !t.Run("onboard", func(t *testing.T) { shared.runPage(t) }) {
		t.FailNow()
	}
	if err := <-deployed; err != nil {
		t.Fatal(err)
	}
	onboarded := step{shared, t}
	lines := []line{onboarded.seeOnboarded()}
	onboarded.giveUpSoon()
	tried := 0
	for _, c := range changes() {
		t.Run(c.name, func(t *testing.T) {
			tried++
			lines = append(lines, c.try(step{shared, t})...)
		})
	}
	seen := newTable(lines)
	t.Logf("\n%s", seen)
	if !t.Failed() && tried == len(changes()) { // -run may have selected some
		compareFile(t, seen, "test", "gitops", "testdata", "changes.txt")
		notReady := slices.DeleteFunc(lines, func(l line) bool { return l.result.Ready })
		compareFile(t, replaceTable(t, newTable(notReady)), "docs", "gitops.md")
	}
}

func newTable(lines []line) string {
	var table strings.Builder
	table.WriteString(tableHead)
	for _, l := range lines {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", l.commit, l.kustomization(), l.sees)
	}
	return table.String()
}

// giveUpSoon has a commit that cannot become Ready given up after the least time that Flux waits, not after the minutes of the page.
func (s step) giveUpSoon() {
	s.T.Helper()
	s.flux.Change(s.T, merchants, `{"spec":{"timeout":"30s","retryInterval":"2s"}}`)
}

// kustomization is how the sync ended, without what differs from run to run.
func (l line) kustomization() string {
	if l.result.Ready {
		return "Ready"
	}
	message := l.result.Message
	message = revisions.ReplaceAllString(message, "…")
	message = policies.ReplaceAllString(message, "… ")
	message = durations.ReplaceAllString(message, "… s")
	message = lists.ReplaceAllStringFunc(message, func(list string) string {
		entries := strings.Split(strings.Trim(list, "[]"), ", ")
		slices.Sort(entries)
		return "[" + strings.Join(entries, ", ") + "]"
	})
	message = commands.ReplaceAllString(strings.Join(strings.Fields(message), " "), "…")
	return "not Ready, `" + l.result.Reason + "`: " + message
}

var (
	revisions = regexp.MustCompile(`main@sha1:[0-9a-f]{40}`)
	durations = regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(µs|ms|s)\b`)
	policies  = regexp.MustCompile(`ValidatingAdmissionPolicy .* denied request: `)
	commands  = regexp.MustCompile(`kubectl patch .*`)
	lists     = regexp.MustCompile(`\[[^\]]*\]`)
)

const (
	onboarding = "\n## From an empty cluster to fifty merchants\n"
	remote     = "https://git.example.com/platform"
	tableHead  = "| Commit | Kustomization | What a person sees |\n|---|---|---|\n"
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

// replaceTable returns the page with another table.
func replaceTable(t *testing.T, table string) string {
	t.Helper()
	before, rest, found := strings.Cut(page(t), tableHead)
	if !found {
		t.Fatalf("docs/gitops.md has no table that begins with\n%s", tableHead)
	}
	for strings.HasPrefix(rest, "|") {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	return before + table + rest
}

// compareFile fails t if the file does not have what was seen, or replaces it.
func compareFile(t *testing.T, seen string, path ...string) {
	t.Helper()
	if *updatePage {
		if err := os.WriteFile(repository.Path(path...), []byte(seen), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(repository.Read(t, path...), seen); diff != "" {
		t.Errorf("%s is not what was seen (-file +seen); `make gitops PAGE=yes` updates it:\n%s", filepath.Join(path...), diff)
	}
}
