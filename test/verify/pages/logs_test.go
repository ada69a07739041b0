package pages

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// logRow is what the page and the code both say of a message.
type logRow struct {
	Levels []string // sorted
	Roles  []string // sorted; of messages in internal/ the page alone knows
}

var (
	logLine  = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([A-Z, ]+) \\| ([a-z, ]+) \\| [^|]+ \\| [^|]+ \\|$")
	logger   = regexp.MustCompile(`(?i)log(ger)?$`)
	roleOf   = map[string]string{"apiserver": "apiserver", "console": "console", "controllers": "operator", "dispatcher": "dispatcher"}
	logLevel = regexp.MustCompile(`^(Debug|Info|Warn|Error)(Context)?$`)
)

func TestLogMessagesAreDocumented(t *testing.T) {
	const page = "docs/reference/logs.md"
	want := map[string]logRow{}
	for _, cells := range logLine.FindAllStringSubmatch(repository.Read(t, page), -1) {
		if _, twice := want[cells[1]]; twice {
			t.Errorf("%s has %q twice", page, cells[1])
		}
		want[cells[1]] = logRow{Levels: sortedWords(cells[2]), Roles: sortedWords(cells[3])}
	}
	got := loggedByTheCode(t)
	if len(got) < 30 {
		t.Fatalf("found only %d log messages in the code", len(got))
	}
	for message, row := range got {
		if row.Roles == nil {
			row.Roles = want[message].Roles
			got[message] = row
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log messages (-%s +code):\n%s", page, diff)
	}
}

func sortedWords(cell string) []string {
	return slices.Sorted(slices.Values(strings.Split(cell, ", ")))
}

// loggedByTheCode are the messages of the product, by their text.
func loggedByTheCode(t *testing.T) map[string]logRow {
	t.Helper()
	levels, roles := map[string]map[string]bool{}, map[string]map[string]bool{}
	for _, path := range files(t, "*.go") {
		top, _, below := strings.Cut(path, "/")
		product := !below || top == "internal" || top == "api" || roleOf[top] != ""
		if !product || strings.HasSuffix(path, "_test.go") {
			continue
		}
		parsed := token.NewFileSet()
		file, err := parser.ParseFile(parsed, path, repository.Read(t, path), 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			level, message, ok := loggedBy(call)
			switch {
			case !ok:
			case message == "":
				t.Errorf("%s logs a message that is no constant", parsed.Position(call.Pos()))
			default:
				if levels[message] == nil {
					levels[message], roles[message] = map[string]bool{}, map[string]bool{}
				}
				levels[message][level] = true
				if role := roleOf[top]; role != "" {
					roles[message][role] = true
				}
			}
			return true
		})
	}
	found := map[string]logRow{}
	for message := range levels {
		found[message] = logRow{Levels: slices.Sorted(maps.Keys(levels[message])), Roles: slices.Sorted(maps.Keys(roles[message]))}
	}
	return found
}

// loggedBy returns level and message of a call of slog or logr, by the names that loggers have here.
func loggedBy(call *ast.CallExpr) (level, message string, ok bool) {
	method, isMethod := call.Fun.(*ast.SelectorExpr)
	if !isMethod || !isLogger(method.X) {
		return "", "", false
	}
	switch match := logLevel.FindStringSubmatch(method.Sel.Name); {
	case match != nil:
		level = strings.ToUpper(match[1])
	case method.Sel.Name == "LogAttrs":
		level = strings.ToUpper(strings.TrimPrefix(fmt.Sprint(call.Args[1].(*ast.SelectorExpr).Sel), "Level"))
	default:
		return "", "", false
	}
	for _, arg := range call.Args[:min(3, len(call.Args))] { // a context, a level or an error may come first
		if literal, isText := arg.(*ast.BasicLit); isText && literal.Kind == token.STRING {
			message, _ = strconv.Unquote(literal.Value)
			break
		}
	}
	return level, message, true
}

func isLogger(expression ast.Expr) bool {
	switch e := expression.(type) {
	case *ast.Ident:
		return logger.MatchString(e.Name)
	case *ast.SelectorExpr:
		return logger.MatchString(e.Sel.Name)
	case *ast.CallExpr: // logf.FromContext(ctx)
		method, ok := e.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "FromContext"
	}
	return false
}
