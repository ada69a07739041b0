// Package repository gives tests the files of this repository and programs built from it, whatever directory they run in.
package repository

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// Path returns an absolute path below the root of the repository.
func Path(elements ...string) string {
	_, thisFile, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(thisFile)))
	return filepath.Join(append([]string{root}, elements...)...)
}

// Read returns the text of a file, and fails t if there is none.
func Read(t testing.TB, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(Path(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// PluginRoles are those that docs/kubectl-merchant.md gives to its readers, in docs/examples/plugin-roles.yaml.
func PluginRoles(t testing.TB) (roles []rbacv1.ClusterRole) {
	t.Helper()
	for document := range strings.SplitSeq(Read(t, "docs", "examples", "plugin-roles.yaml"), "---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.UnmarshalStrict([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		roles = append(roles, role)
	}
	return roles
}

// Build compiles a package of the repository, "." for the product, into a program at this path. The program has the race
// detector if the test has it: both share what is compiled.
func Build(program, directory string) error {
	arguments := []string{"build", "-o", program}
	if hasRaceDetector() {
		arguments = append(arguments, "-race")
	}
	build := exec.Command("go", append(arguments, ".")...)
	build.Dir = Path(directory)
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", directory, err, output)
	}
	return nil
}

func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
