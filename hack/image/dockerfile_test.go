package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDockerfileHasAllSources: the Dockerfile copies directories by name, and .dockerignore lets only those through.
// A package in a new one would build everywhere but in docker.
func TestDockerfileHasAllSources(t *testing.T) {
	root := filepath.Join("..", "..")
	const module = "github.com/merchant-operator/merchant-operator"
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}", ".")
	list.Dir = root
	said, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	dockerfile, ignored := read(t, filepath.Join(root, "Dockerfile")), read(t, filepath.Join(root, ".dockerignore"))
	for line := range strings.FieldsSeq(string(said)) {
		directory, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line, module), "/"), "/")
		if directory == "" {
			continue // the root's own files
		}
		if !strings.Contains(dockerfile, "\nCOPY "+directory+" "+directory+"\n") {
			t.Errorf("the product has %s, and the Dockerfile does not copy %s", line, directory)
		}
		if !strings.Contains(ignored, "\n!"+directory+"\n") {
			t.Errorf("the product has %s, and .dockerignore hides it", line)
		}
	}
	for _, line := range []string{
		"FROM scratch",
		"COPY --from=build " + rootsPath + " " + filepath.Dir(rootsPath) + "/",
		"COPY --from=build " + binaryPath + " " + binaryPath,
		"USER " + user,
		`ENTRYPOINT ["` + binaryPath + `"]`,
	} {
		if !strings.Contains(dockerfile, "\n"+line+"\n") {
			t.Errorf("the Dockerfile makes another image than the one assembled without it: no %q", line)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
