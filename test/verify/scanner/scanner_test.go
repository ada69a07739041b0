// Package scanner runs the real gitleaks with config/gitleaks.toml: on sources with keys, and on this repository. It has only tests.
package scanner

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// finding is what gitleaks reports.
type finding struct {
	RuleID string `json:"RuleID"`
	File   string `json:"File"`
	Secret string `json:"Secret"`
}

// scan runs gitleaks on a directory.
func scan(t *testing.T, directory string) []finding {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	gitleaks := exec.CommandContext(t.Context(), "go", "-C", repository.Path("hack", "release", "tools"), "tool", "gitleaks", "dir", directory,
		"--config", repository.Path("config", "gitleaks.toml"), "--report-format", "json", "--report-path", report, "--exit-code", "0", "--no-banner")
	if output, err := gitleaks.CombinedOutput(); err != nil {
		t.Fatalf("gitleaks: %v\n%s", err, output)
	}
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var findings []finding
	if err := json.Unmarshal(data, &findings); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	for i := range findings {
		if findings[i].File, err = filepath.Rel(directory, findings[i].File); err != nil {
			t.Fatal(err)
		}
	}
	return findings
}

// sources are files as people commit them. A placeholder stands for a generated secret; {{base64}} for an encoded key, as in a Secret.
var sources = map[string]string{
	"main.go":          "const key = \"{{key}}\"\nvar secret = []byte(`{{signing}}`)\n",
	"shop.js":          "fetch(url, {headers: {authorization: 'Bearer {{key}}'}});\nconst secret = '{{signing}}';\n",
	"shop.ts":          "const key: string = `{{test}}`;\nexport const signing = \"{{signing}}\" as const;\n",
	"till.py":          "API_KEY = '{{key}}'\nsecret = b\"{{signing}}\"\n",
	"Till.java":        "  private static final String KEY = \"{{key}}\";\n  String body = \"a\\n{{key}}\\n\";\n",
	"Till.cs":          "var client = new Client(\"{{key}}\");\nvar secret = @\"{{signing}}\";\n",
	"till.php":         "<?php\ndefine('API_KEY', '{{key}}');\n$hook = ['secret' => '{{signing}}'];\n",
	"till.rb":          "ENV['KEY'] ||= '{{key}}'\nSECRET = %q({{signing}})\n",
	"till.rs":          "const KEY: &str = \"{{key}}\";\n",
	"Till.kt":          "val key = \"{{test}}\"\n",
	"till.sh":          "export API_KEY={{key}}\ncurl -H \"Authorization: Bearer {{key}}\" $URL\n",
	".env":             "API_KEY={{key}}\nWEBHOOK_SECRET={{signing}}\n",
	"values.yaml":      "shop:\n  apiKey: {{key}}\n  signing: '{{signing}}'\n",
	"secret.yaml":      "apiVersion: v1\nkind: Secret\nmetadata: {name: till-key}\ndata:\n  apiKey: {{base64}}\n",
	"settings.json":    "{\"apiKey\": \"{{key}}\", \"log\": \"begin\\n{{key}}\\tend\", \"webhook\": {\"secret\": \"{{signing}}\"}}\n",
	"app.properties":   "till.key={{key}}\n",
	"pom.xml":          "<apiKey>{{key}}</apiKey>\n",
	"main.tf":          "variable \"key\" { default = \"{{key}}\" }\n",
	"Dockerfile":       "ENV API_KEY={{key}}\n",
	"notes.md":         "The till has `{{key}}`, the webhook {{signing}}.\n",
	"dump.sql":         "INSERT INTO tills VALUES (1,'{{key}}','{{signing}}');\n",
	"access.log":       "\"GET /?key={{key}} HTTP/1.1\" 200\n",
	"nothing/notes.md": "mk_live_… mk_live_2yylmkzckvhj_0123 whsec_… mk_live_nobody whsec_test mk_live_2yylmkzckvhj mk_test_XXXXXXXXXXXX_YYYY\n",
	"nothing/sums.txt": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 till\nmk_live_build_artifacts_of_the_last_release_candidate_of_2026_11\n",
}

var placeholder = regexp.MustCompile(`\{\{[a-z0-9]+\}\}`)

// Each planted key is found in the file where it is, and nothing else is.
func TestScan_PlantedSecrets(t *testing.T) {
	directory := t.TempDir()
	var want []finding
	for name, text := range sources {
		text = placeholder.ReplaceAllStringFunc(text, func(kind string) string {
			secret, rule := generate(t, kind), "merchant-operator-api-key"
			if kind == "{{signing}}" {
				rule = "merchant-operator-signing-secret"
			}
			want = append(want, finding{rule, filepath.FromSlash(name), secret})
			if kind == "{{base64}}" {
				return base64.StdEncoding.EncodeToString([]byte(secret))
			}
			return secret
		})
		path := filepath.Join(directory, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(want) < len(sources) {
		t.Fatalf("%d secrets are in %d files", len(want), len(sources))
	}
	got := scan(t, directory)
	for _, all := range [][]finding{want, got} {
		slices.SortFunc(all, func(a, b finding) int { return strings.Compare(a.File+a.Secret, b.File+b.Secret) })
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-planted +found):\n%s", diff)
	}
}

// generate returns a secret as the operator makes it.
func generate(t *testing.T, kind string) string {
	t.Helper()
	if kind == "{{signing}}" {
		return published.NewSigningSecret().Reveal()
	}
	issue := apikey.New
	if kind == "{{test}}" {
		issue = apikey.NewTest
	}
	key, err := issue(published.ID("till"))
	if err != nil {
		t.Fatal(err)
	}
	return key.Reveal()
}

// TestScan_CommandsOfPage: the commands of docs/leaked-key.md find a key in the history of a repository, and a signing secret in a file.
func TestScan_CommandsOfPage(t *testing.T) {
	_, block, found := strings.Cut(repository.Read(t, "docs", "leaked-key.md"), "<!-- needs gitleaks -->\n```sh\n")
	block, _, _ = strings.Cut(block, "```")
	commands := slices.Collect(strings.Lines(block))
	if !found || len(commands) != 2 {
		t.Fatalf("the commands of the page are %q", commands)
	}
	program, err := exec.CommandContext(t.Context(), "go", "-C", repository.Path("hack", "release", "tools"), "tool", "-n", "gitleaks").Output()
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	shell := func(script string) (string, error) {
		bash := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		bash.Dir = directory
		bash.Env = append(os.Environ(), "PATH="+filepath.Dir(string(program))+string(filepath.ListSeparator)+os.Getenv("PATH"),
			"KEY="+generate(t, "{{key}}"), "SIGNING="+generate(t, "{{signing}}"), "RULES="+repository.Path("config", "gitleaks.toml"),
			"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@shop.example", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@shop.example")
		output, err := bash.CombinedOutput()
		return string(output), err
	}
	run := func(script string) {
		t.Helper()
		if output, err := shell(script); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	}
	run(`git init --quiet; cp "$RULES" .; git add .; git commit --quiet -m "rules of gitleaks"`)
	run(block)
	run(`echo "API_KEY=$KEY" >till.env; git add .; git commit --quiet -m "add a till"; git rm --quiet till.env; git commit --quiet -m "remove it"`)
	run(`echo "SECRET=$SIGNING" >hooks.env`)
	for _, command := range commands {
		if output, err := shell(command); err == nil || !strings.Contains(output, "leaks found: 1") {
			t.Errorf("%s%v\n%s", command, err, output)
		}
	}
}

// No file of this repository has a hit, whether it is committed yet or not: its examples are keys that nobody has.
func TestScan_Repository(t *testing.T) {
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = repository.Path()
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	directory, copied := t.TempDir(), 0
	for name := range bytes.SplitSeq(bytes.TrimRight(names, "\x00"), []byte{0}) {
		data, err := os.ReadFile(repository.Path(string(name)))
		if err != nil { // deleted and not committed yet, or a link to a directory
			continue
		}
		path := filepath.Join(directory, string(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		copied++
	}
	if copied < 500 {
		t.Fatalf("only %d files", copied)
	}
	for _, found := range scan(t, directory) {
		t.Errorf("%s: %s", found.File, found.RuleID)
	}
}
