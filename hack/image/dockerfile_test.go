package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The image is assembled here in most places, and built by the Dockerfile in others, so that nobody would notice a
// package that the Dockerfile does not know.
func TestDockerfileCopiesWhatIsCompiled(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command("go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}", ".")
	list.Dir = root
	packages, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for name := range strings.FieldsSeq(string(packages)) {
		path := strings.TrimPrefix(strings.TrimPrefix(name, "github.com/merchant-operator/merchant-operator"), "/")
		if directory, _, _ := strings.Cut(path, "/"); directory != "" && !slices.Contains(want, directory) {
			want = append(want, directory)
		}
	}
	if len(want) < 3 {
		t.Fatalf("the program is compiled of %v only", want)
	}
	for _, directory := range want {
		if line := "\nCOPY " + directory + " " + directory + "\n"; !strings.Contains(string(text), line) {
			t.Errorf("the Dockerfile lacks %q", strings.TrimSpace(line))
		}
	}
}
