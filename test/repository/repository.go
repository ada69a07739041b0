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
	"testing"
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
