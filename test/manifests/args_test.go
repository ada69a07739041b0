package manifests

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The manifests and the program must not drift apart: the program itself is asked whether it knows the
// arguments. With --help it parses them all, and then only prints.
func TestTheProgramKnowsItsArguments(t *testing.T) {
	program := filepath.Join(t.TempDir(), "merchant-operator")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, deployment := range deployments(t) {
		arguments := append(deployment.Spec.Template.Spec.Containers[0].Args, "--help")
		out, err := exec.CommandContext(t.Context(), program, arguments...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: merchant-operator %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
		}
		if !strings.Contains(string(out), "merchant-operator "+arguments[0]+" [flags]") {
			t.Errorf("%s: %q is no role of the program", name, arguments[0])
		}
	}
}
