// Package pages checks what the documentation refers to: links lead somewhere, and the tests, files and make targets that
// pages name are there.
package pages

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

var (
	codeBlock = regexp.MustCompile("(?s)```.*?```")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	code      = regexp.MustCompile("`([^`\n]+)`")
	testName  = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]+$`)
	testFile  = regexp.MustCompile(`^[a-z0-9/_]+_test\.go$`)
	target    = regexp.MustCompile(`^make ([a-z0-9][a-z0-9-]+)`)
	quoted    = regexp.MustCompile(`"([a-z][^"]+)"`)
	declared  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Za-z0-9_]+)\(`)
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// pages are the text of every page, by its path from the root. What is not committed yet counts too.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, path := range files(t, "*.md") {
		out[path] = repository.Read(t, path)
	}
	if len(out) < 15 {
		t.Fatalf("found %d pages only", len(out))
	}
	return out
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", pattern)
	list.Dir = repository.Path()
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		_, err := os.Stat(repository.Path(path))
		return err != nil
	})
}

// A row above the header, or a table without one, is text with bars in it.
func TestTables_HaveHeaders(t *testing.T) {
	rule := regexp.MustCompile(`^\|(\s*:?-+:?\s*\|)+$`)
	for path, text := range pages(t) {
		lines := strings.Split(codeBlock.ReplaceAllString(text, ""), "\n")
		for i, line := range lines {
			first := strings.HasPrefix(line, "|") && (i == 0 || !strings.HasPrefix(lines[i-1], "|"))
			if first && (i+1 == len(lines) || !rule.MatchString(lines[i+1])) {
				t.Errorf("%s: no header before %q", path, line)
			}
		}
	}
}

// docs/versions.md names the oldest version of Kubernetes that the chart accepts, and the one that all tests run on.
func TestVersions_Kubernetes(t *testing.T) {
	page := repository.Read(t, "docs", "versions.md")
	for _, source := range []struct {
		says, pattern string
		path          []string
	}{
		{"%s or later, for", `kubeVersion: ">=(\d+\.\d+)`, []string{"charts", "merchant-operator", "Chart.yaml"}},
		{"All tests run on %s.", `k8s\.io/kubernetes v(\d+\.\d+)`, []string{"hack", "controlplane", "go.mod"}},
		{"All tests run on %s.", `k8s\.io/kubernetes v(\d+\.\d+)`, []string{"hack", "cluster", "components", "go.mod"}},
	} {
		found := regexp.MustCompile(source.pattern).FindStringSubmatch(repository.Read(t, source.path...))
		if found == nil {
			t.Fatalf("%v has no %s", source.path, source.pattern)
		}
		if want := fmt.Sprintf(source.says, found[1]); !strings.Contains(page, want) {
			t.Errorf("docs/versions.md does not say %q, as %s has it", want, filepath.Join(source.path...))
		}
	}
}

func TestLinks(t *testing.T) {
	all := pages(t)
	for path, text := range all {
		for _, found := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(found[1], "#")
			where := path
			if file != "" {
				where = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(repository.Path(where)); err != nil {
				t.Errorf("%s links to %s, which is not there", path, found[1])
			} else if anchor != "" && strings.HasSuffix(where, ".md") && !slices.Contains(anchors(all[where]), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", path, found[1], where)
			}
		}
	}
}

func TestNames_Exist(t *testing.T) {
	tests := map[string]bool{}
	for _, path := range files(t, "*_test.go") {
		for _, found := range declared.FindAllStringSubmatch(repository.Read(t, path), -1) {
			tests[found[1]] = true
		}
	}
	makefile := repository.Read(t, "Makefile")
	targets := 0
	for path, text := range pages(t) {
		for _, found := range code.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			switch words := found[1]; {
			case testName.MatchString(words):
				if !tests[words] {
					t.Errorf("%s names the test %s, which is not there", path, words)
				}
			case testFile.MatchString(words):
				if _, err := os.Stat(repository.Path(words)); err != nil {
					t.Errorf("%s names the tests in %s, which is not there", path, words)
				}
			case target.MatchString(words):
				targets++
				if name := target.FindStringSubmatch(words)[1]; !strings.Contains(makefile, "\n"+name+":") {
					t.Errorf("%s names `make %s`, which there is not", path, name)
				}
			}
		}
	}
	if targets < 10 {
		t.Errorf("found %d make targets", targets)
	}
}

// Runbooks, and the table of log lines, quote what somebody searches the logs for.
func TestLogLines_InCode(t *testing.T) {
	var source strings.Builder
	for _, path := range files(t, "*.go") {
		if !strings.HasPrefix(path, "test/") && !strings.HasPrefix(path, "hack/") && !strings.HasSuffix(path, "_test.go") {
			source.WriteString(repository.Read(t, path))
		}
	}
	found := 0
	for path, text := range pages(t) {
		if path == "docs/observability.md" {
			_, text, _ = strings.Cut(text, "\n## Logs\n")
		} else if !strings.HasPrefix(path, "docs/runbooks/") {
			continue
		}
		for _, line := range quoted.FindAllStringSubmatch(code.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), ""), -1) {
			found++
			if message := strings.Join(strings.Fields(line[1]), " "); !strings.Contains(source.String(), `"`+message) {
				t.Errorf("%s quotes %q, which no role logs", path, message)
			}
		}
	}
	if found < 15 {
		t.Errorf("found %d quoted log lines", found)
	}
}

// Programs see a variable only if it is exported, and .dev/env has KEY=value lines for readers that are no shell.
func TestEnvironment_Exported(t *testing.T) {
	const load = "set -a; . .dev/env; set +a"
	texts := pages(t)
	for _, path := range files(t, "hack/devenv/*.go") {
		texts[path] = repository.Read(t, path)
	}
	found := 0
	for path, text := range texts {
		found += strings.Count(text, load)
		if strings.Contains(strings.ReplaceAll(text, load, ""), ". .dev/env") {
			t.Errorf("%s does not load .dev/env with %q", path, load)
		}
	}
	if found < 4 {
		t.Errorf("found %d commands that load .dev/env", found)
	}
}

// anchors are the headings of a page as GitHub makes links of them.
func anchors(page string) []string {
	var out []string
	for _, found := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(page, ""), -1) {
		slug := notInSlug.ReplaceAllString(strings.ToLower(found[1]), "")
		out = append(out, strings.ReplaceAll(slug, " ", "-"))
	}
	return out
}

var (
	conditionName = regexp.MustCompile(`^[A-Z][A-Za-z]*Condition$`)
	reasonName    = regexp.MustCompile(`^[rR]eason[A-Z][A-Za-z0-9]*$`)
	camelCase     = regexp.MustCompile(`^[A-Z][A-Za-z]+$`) // other reasons are labels of metrics
	firstCells    = regexp.MustCompile(`(?m)^\| (.+) \|$`)
)

// roles are the folders whose constants name every condition, reason and event.
var roles = []string{"controllers/", "dispatcher/", "api/v1alpha1/"}

// The page explains every condition, reason and event, and no other.
func TestConditions_Documented(t *testing.T) {
	const page = "docs/reference/conditions.md"
	inCode := map[string]bool{"Reconciling": true, "Stalled": true}
	for _, value := range slices.Concat(constantsBelow(t, reasonName, roles...), constantsBelow(t, conditionName, roles...)) {
		if camelCase.MatchString(value) {
			inCode[value] = true
		}
	}
	if len(inCode) < 30 {
		t.Fatalf("found only %d conditions and reasons in the code", len(inCode))
	}
	text := repository.Read(t, page)
	var missing []string
	for value := range inCode {
		if !strings.Contains(text, "`"+value+"`") {
			missing = append(missing, value)
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		t.Errorf("%s does not explain %v", page, missing)
	}
	if diff := cmp.Diff([]string(nil), unknown(text, inCode)); diff != "" {
		t.Errorf("%s explains what the code does not have (-want +got):\n%s", page, diff)
	}
}

// unknown are the conditions, reasons and events of the tables that the code does not have.
func unknown(text string, inCode map[string]bool) []string {
	var out []string
	for _, row := range firstCells.FindAllStringSubmatch(text, -1) {
		cells := strings.Split(row[1], " | ")
		for _, cell := range cells[:min(3, len(cells))] {
			value := strings.Trim(cell, "`")
			if cell != value && camelCase.MatchString(value) && !inCode[value] {
				out = append(out, value)
			}
		}
	}
	return out
}

// platformReasons are of use to the platform team only, so the console has no words for them.
var platformReasons = []string{
	"Published", "NotIssued", "NewerVersion", "Failed", "PlatformMaximum", "ExpiresAt", "Schedule", "RecordRestored", "TriggerIgnored",
	"Delivered", "NotDelivered", "RotatedOverHTTP", "RetentionEnded", "StaleDeliveryRemoved", "DeliveryMoved", "DeliveryEnded", "DeliveryRemoved",
	"KeyReplaced", "KeyNotReplaced", "OldKeyUsed", "OverlapEndsSoon", "OldKeyUnused", "NoOldKey", "UsesUnknown", "RotationPending", "TooManyDeleted", "StillAccepted",
	"SigningSecretIssued", "SigningSecretRotated", "SigningSecretDelivered", "WebhookRemoved", "Retrying",
}

// The console has words for each of its own actions and problems, for each reason of a condition or
// Event that concerns a shop owner, and for no other.
func TestConsoleWords_Conditions(t *testing.T) {
	worded := slices.Concat(consoleWords(t, "problem."), consoleWords(t, "event."), consoleWords(t, "failure."))
	actions := constantsBelow(t, regexp.MustCompile(`^Action[A-Z]`), "console/audit/")
	for _, action := range actions {
		if !slices.Contains(worded, action) {
			t.Errorf("the console has no words for its own action %s", action)
		}
	}
	for _, reason := range constantsBelow(t, reasonName, roles...) {
		if camelCase.MatchString(reason) && slices.Contains(worded, reason) == slices.Contains(platformReasons, reason) {
			t.Errorf("%s needs words in the console, or a place in platformReasons", reason)
		}
	}
	problems := constantsBelow(t, regexp.MustCompile(`^problem[A-Z]`), "console/")
	for _, problem := range problems {
		if !slices.Contains(worded, problem) {
			t.Errorf("the console has no words for its own problem %s", problem)
		}
	}
	inCode := slices.Concat([]string{"NotReady"}, actions, problems, constantsBelow(t, reasonName, roles...), constantsBelow(t, conditionName, roles...))
	for _, reason := range slices.Concat(worded, platformReasons) {
		if !slices.Contains(inCode, reason) {
			t.Errorf("%s is no reason of the code", reason)
		}
	}
}

// A dead letter's reason is in a constant of the dispatcher or the outbox. The console and docs/webhooks.md explain each.
func TestConsoleWords_DeadLetters(t *testing.T) {
	reasons := slices.DeleteFunc(constantsBelow(t, reasonName, "dispatcher/", "internal/outbox/"), func(reason string) bool {
		// Without a secret to sign with, and after an attempt that was interrupted, events wait.
		return camelCase.MatchString(reason) || slices.Contains([]string{"delivered", "interrupted", "unsigned"}, reason)
	})
	_, table, _ := strings.Cut(repository.Read(t, "docs/webhooks.md"), "| Reason in a dead letter | Meaning |\n|---|---|\n")
	var documented []string
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| .* \|$`).FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([a-z_0-9]+)`").FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, name[1])
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(reasons, documented); diff != "" {
		t.Errorf("docs/webhooks.md (-code +page):\n%s", diff)
	}
	if diff := cmp.Diff(reasons, slices.DeleteFunc(consoleWords(t, "reason."), func(reason string) bool { return reason == "other" })); diff != "" {
		t.Errorf("the console (-code +words):\n%s", diff)
	}
}

// consoleWords returns the keys of the console's words that have the prefix, without it, in order.
func consoleWords(t *testing.T, prefix string) (found []string) {
	t.Helper()
	var words map[string]string
	if err := json.Unmarshal([]byte(repository.Read(t, "console/web/words/en.json")), &words); err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(words)) {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			found = append(found, rest)
		}
	}
	return found
}

// constantsBelow returns the values of the constants in folders whose names match, in order.
func constantsBelow(t *testing.T, name *regexp.Regexp, folders ...string) (found []string) {
	t.Helper()
	for _, path := range files(t, "*.go") {
		if strings.HasSuffix(path, "_test.go") || !slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(path, folder) }) {
			continue
		}
		for constant, value := range constants(t, path) {
			if name.MatchString(constant) {
				found = append(found, value)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// constants returns the constants of a Go file that are strings.
func constants(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Base(path), repository.Read(t, path), 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, value := range spec.Values {
			literal, ok := value.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING || i >= len(spec.Names) {
				continue
			}
			if text, err := strconv.Unquote(literal.Value); err == nil {
				found[spec.Names[i].Name] = text
			}
		}
		return true
	})
	return found
}
