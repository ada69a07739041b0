// Package program asks the program itself whether it knows the arguments that manifests give it.
package program

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// New builds the program, and returns a check of a workload's arguments. With --help the program parses them all and
// then only prints.
func New(t *testing.T) (check func(workload string, arguments []string)) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "merchant-operator")
	if err := repository.Build(program, "."); err != nil {
		t.Fatal(err)
	}
	return func(workload string, arguments []string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, append(arguments, "--help")...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: merchant-operator %s: %v\n%s", workload, strings.Join(arguments, " "), err, out)
		}
		if !strings.Contains(string(out), "merchant-operator "+arguments[0]+" [flags]") {
			t.Errorf("%s: %q is no role of the program", workload, arguments[0])
		}
	}
}
