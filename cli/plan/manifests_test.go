package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// merchant is a manifest.
func merchant(name string) string {
	return "apiVersion: merchant-operator.io/v1alpha1\nkind: Merchant\nmetadata: {name: " + name + "}\nspec: {displayName: Acme}\n"
}

func write(t *testing.T, directory, name, text string) {
	t.Helper()
	file := filepath.Join(directory, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func names(m Manifests) string {
	var found []string
	for _, manifest := range m.Objects {
		found = append(found, manifest.Source+" "+manifest.Object.GetNamespace()+"/"+manifest.Object.GetName())
	}
	return strings.Join(found, ", ")
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", "# a comment\n---\n"+merchant("one")+"---\n\n---\n"+merchant("two")+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shops}\n")
	write(t, dir, "below/deeper/b.yml", merchant("three"))
	write(t, dir, "c.json", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"merchant-operator.io/v1alpha1","kind":"Merchant","metadata":{"name":"four"}},{"kind":"Secret"}]}`)
	write(t, dir, "README.md", "kind: Merchant")
	write(t, dir, ".git/d.yaml", merchant("hidden"))
	write(t, dir, ".github/workflows/d.yaml", merchant("hidden"))
	write(t, dir, "below/.gitlab-ci.yml", "job: {script: !reference [.setup, script]}\n---\n"+merchant("hidden"))
	write(t, dir, ".sops.yaml", merchant("hidden"))
	write(t, dir, ".e.yaml", merchant("dotted"))
	write(t, dir, "below/.hidden/e.yaml", merchant("below"))
	outside := t.TempDir()
	write(t, outside, "f.yaml", merchant("outside"))
	link(t, outside, filepath.Join(dir, "linked"))
	write(t, dir, "values.yaml", "replicas: 3\n")
	write(t, dir, "empty.yaml", "")
	var m Manifests
	if err := m.Read(dir, nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Default("shops"); err != nil {
		t.Fatal(err)
	}
	if got, want := names(m), ".e.yaml shops/dotted, a.yaml shops/one, a.yaml shops/two, below/.hidden/e.yaml shops/below, below/deeper/b.yml shops/three, c.json shops/four"; got != want || m.Ignored != 3 || !m.Namespaces["shops"] {
		t.Errorf("%s, %d ignored, namespaces %v; want %s", got, m.Ignored, m.Namespaces, want)
	}
	if err := m.Read(filepath.Join(dir, "a.yaml"), nil); err != nil || len(m.Objects) != 8 {
		t.Errorf("a file: %v, %d objects", err, len(m.Objects))
	}
	if err := m.Default("shops"); err == nil || !strings.Contains(err.Error(), `Merchant "shops/one" is there twice: in "a.yaml" and in "a.yaml"`) {
		t.Errorf("an object that is there twice: %v", err)
	}
	var piped Manifests
	if err := piped.Read("-", strings.NewReader(merchant("five"))); err != nil || len(piped.Objects) != 1 {
		t.Errorf("standard input: %v, %d objects", err, len(piped.Objects))
	}
}

// bomb is a document of a few lines that stands for gigabytes.
func bomb(levels int) string {
	var text strings.Builder
	text.WriteString(merchant("bomb") + "a0: &a0 " + strings.Repeat("x", 1000) + "\n")
	for i := range levels {
		fmt.Fprintf(&text, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	return text.String()
}

func TestRead_Hostile(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	write(t, filepath.Dir(secret), "secret.yaml", merchant("secret"))
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string)
		want    string
	}{
		"a bomb of 10 MB": {func(t *testing.T, dir string) { t.Helper(); write(t, dir, "a.yaml", bomb(4)) }, "excessive aliasing"},
		"a bomb of 10 GB": {func(t *testing.T, dir string) { t.Helper(); write(t, dir, "a.yaml", bomb(9)) }, "excessive aliasing"},
		"a long text, many times": {func(t *testing.T, dir string) {
			t.Helper()
			write(t, dir, "a.yaml", "a: &a "+strings.Repeat("x", 1<<19)+"\nb: ["+strings.Repeat("*a, ", 5000)+strings.Repeat("1, ", 500)+"*a]\n")
		}, "larger than 1 MiB"},
		"an alias to itself": {func(t *testing.T, dir string) { t.Helper(); write(t, dir, "a.yaml", "a: &a [*a]\n") }, "contains itself"},
		"deep": {func(t *testing.T, dir string) {
			t.Helper()
			write(t, dir, "a.yaml", "a: "+strings.Repeat("[", 5000)+strings.Repeat("]", 5000))
		}, "nested deeper than 100"},
		"a large document": {func(t *testing.T, dir string) { t.Helper(); write(t, dir, "a.yaml", "a: "+strings.Repeat("x", 2<<20)) }, "document 1: larger than 1 MiB"},
		"a large file":     {func(t *testing.T, dir string) { t.Helper(); write(t, dir, "a.yaml", strings.Repeat("#\n", 3<<20)) }, "larger than 4 MiB"},
		"many large files": {func(t *testing.T, dir string) {
			t.Helper()
			for i := range 17 {
				write(t, dir, fmt.Sprintf("%d.yaml", i), "#"+strings.Repeat(" ", 4<<20-1))
			}
		}, "together larger than 64 MiB"},
		"a key twice": {func(t *testing.T, dir string) { t.Helper(); write(t, dir, "a.yaml", merchant("a")+"spec: {}\n") }, "already set in map"},
		"a template": {func(t *testing.T, dir string) {
			t.Helper()
			write(t, dir, "a.yaml", "{{ if .Values.merchant }}\nkind: Merchant\n")
		}, "a.yaml, document 1: "},
		"no UTF-8":   {func(t *testing.T, dir string) { t.Helper(); write(t, dir, "a.yaml", "kind: \xff\xfe\x00") }, "a.yaml, document 1: "},
		"a link out": {func(t *testing.T, dir string) { t.Helper(); link(t, secret, filepath.Join(dir, "a.yaml")) }, "a.yaml: neither a file nor a directory"},
		"a link inside": {func(t *testing.T, dir string) {
			t.Helper()
			write(t, dir, "b.txt", merchant("a"))
			link(t, "b.txt", filepath.Join(dir, "a.yaml"))
		}, "symbolic links are not followed"},
		"a pipe":          {func(t *testing.T, dir string) { t.Helper(); pipe(t, filepath.Join(dir, "a.yaml")) }, "a.yaml: neither a file nor a directory"},
		"a kustomization": {func(t *testing.T, dir string) { t.Helper(); write(t, dir, "kustomization.yaml", "resources: [a.yaml]") }, "kubectl kustomize DIR"},
		"a kustomization of another name": {func(t *testing.T, dir string) {
			t.Helper()
			write(t, dir, "a.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [b.yaml]\n")
		}, "kubectl kustomize DIR"},
		"two documents, the end of one": {func(t *testing.T, dir string) {
			t.Helper()
			write(t, dir, "a.yaml", merchant("one")+"...\n"+merchant("two"))
		}, "document 1: "},
		"two documents, an end and a beginning": {func(t *testing.T, dir string) {
			t.Helper()
			write(t, dir, "a.yaml", strings.ReplaceAll(merchant("one")+"---\n"+merchant("two"), "\n", "\r"))
		}, "another document follows"},
		"two documents of JSON": {func(t *testing.T, dir string) {
			t.Helper()
			write(t, dir, "a.json", `{"apiVersion":"v1","kind":"List"}`+"\n"+`{"apiVersion":"v1","kind":"List"}`)
		}, "a.json, document 1: "},
		"a list of lists of lists, deep": {func(t *testing.T, dir string) {
			t.Helper()
			write(t, dir, "a.yaml", strings.Repeat("{kind: List, apiVersion: v1, items: [", 60)+strings.Repeat("]}", 60))
		}, "nested deeper than 100"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			test.prepare(t, dir)
			var m Manifests
			if err := m.Read(dir, nil); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func link(t *testing.T, to, from string) {
	t.Helper()
	if err := os.Symlink(to, from); err != nil {
		t.Fatal(err)
	}
}

func pipe(t *testing.T, name string) {
	t.Helper()
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
}
