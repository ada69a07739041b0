package pages

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const dependenciesPage = "docs/dependencies.md"

// ownModule is that of go.mod; the others are of tools.
const ownModule = "go.mod"

// moduleFile is what `go mod edit -json` tells of one.
type moduleFile struct {
	// Require has the indirect ones too.
	Require []struct {
		Path     string `json:"Path"`
		Indirect bool   `json:"Indirect"`
	} `json:"Require"`
	Tool []struct {
		Path string `json:"Path"`
	} `json:"Tool"`
}

func readModuleFile(t *testing.T, path string) moduleFile {
	t.Helper()
	edit := exec.Command("go", "mod", "edit", "-json", path)
	edit.Dir = root()
	out, err := edit.Output()
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	var read moduleFile
	if err := json.Unmarshal(out, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// direct are the modules that a file asks for by itself.
func (m moduleFile) direct() []string {
	var out []string
	for _, required := range m.Require {
		if !required.Indirect {
			out = append(out, required.Path)
		}
	}
	return out
}

func TestThePageHasEveryDependency(t *testing.T) {
	own := readModuleFile(t, ownModule)
	want := sectionsOf(t, own)
	for _, path := range files(t, "*.mod") {
		if path == ownModule {
			continue
		}
		tools := readModuleFile(t, path)
		for _, tool := range tools.Tool {
			want["Tools in modules of their own"] = append(want["Tools in modules of their own"], tool.Path+" "+path)
		}
		for _, module := range tools.direct() {
			want["Tools in modules of their own"] = append(want["Tools in modules of their own"], module+" "+path)
		}
	}
	got := listed(read(t, dependenciesPage))
	for section := range maps.Keys(want) {
		for _, one := range want[section] {
			if !slices.Contains(got[section], one) {
				t.Errorf("%s lacks %s in %q", dependenciesPage, one, section)
			}
		}
		for _, one := range got[section] {
			if !slices.Contains(want[section], one) {
				t.Errorf("%s has %s in %q, where it does not belong", dependenciesPage, one, section)
			}
		}
	}
}

// sectionsOf puts each direct module into the section of who imports it: the product before tools, tools before tests.
func sectionsOf(t *testing.T, own moduleFile) map[string][]string {
	t.Helper()
	const binary, tools, tests = "In the binary", "In this repository's own tools", "In tests"
	importers := map[string][]string{}
	for _, path := range files(t, "*.go") {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root(), path), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range parsed.Imports {
			name, _ := strconv.Unquote(imported.Path.Value) // the parser has seen that it is quoted
			if module := moduleOf(name, own.direct()); module != "" {
				importers[module] = append(importers[module], path)
			}
		}
	}
	sections := map[string][]string{}
	for _, module := range own.direct() {
		section := tests
		for _, path := range importers[module] {
			switch {
			case strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/"):
			case strings.HasPrefix(path, "hack/"):
				if section == tests {
					section = tools
				}
			default:
				section = binary
			}
		}
		if len(importers[module]) == 0 {
			t.Errorf("go.mod asks for %s, which nothing imports", module)
		}
		sections[section] = append(sections[section], module)
	}
	return sections
}

// moduleOf is the longest module that a package can be of.
func moduleOf(imported string, modules []string) string {
	var longest string
	for _, module := range modules {
		if (imported == module || strings.HasPrefix(imported, module+"/")) && len(module) > len(longest) {
			longest = module
		}
	}
	return longest
}

var (
	section = regexp.MustCompile(`(?m)^## `)
	row     = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(?: `([^`]+)` \\|)?")
)

// listed are the first cells of the rows of each section, with the module file where there is one.
func listed(page string) map[string][]string {
	out := map[string][]string{}
	for _, part := range section.Split(page, -1)[1:] {
		title, body, _ := strings.Cut(part, "\n")
		for _, found := range row.FindAllStringSubmatch(body, -1) {
			out[title] = append(out[title], strings.TrimSpace(found[1]+" "+found[2]))
		}
	}
	return out
}
