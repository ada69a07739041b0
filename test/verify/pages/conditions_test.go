package pages

import (
	"go/ast"
	"go/parser"
	"go/token"
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
	conditionName = regexp.MustCompile(`^[A-Z][A-Za-z]*Condition$`)
	reasonName    = regexp.MustCompile(`^[rR]eason[A-Z][A-Za-z]*$`)
	camelCase     = regexp.MustCompile(`^[A-Z][A-Za-z]+$`) // other reasons are labels of metrics
	firstCells    = regexp.MustCompile(`(?m)^\| (.+) \|$`)
)

// The operator and the dispatcher name every condition, reason and event in a constant.
func TestConditionsAndEventsAreDocumented(t *testing.T) {
	const page = "docs/reference/conditions.md"
	inCode := map[string]bool{"Reconciling": true, "Stalled": true}
	for _, path := range files(t, "*.go") {
		role := strings.HasPrefix(path, "controllers/") || strings.HasPrefix(path, "dispatcher/") || strings.HasPrefix(path, "api/v1alpha1/")
		if !role || strings.HasSuffix(path, "_test.go") {
			continue
		}
		for name, value := range constants(t, path) {
			if (conditionName.MatchString(name) || reasonName.MatchString(name)) && camelCase.MatchString(value) {
				inCode[value] = true
			}
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
