package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

var (
	valuesBlock   = regexp.MustCompile("(?sm)^( *)```yaml\n(.*?)```")
	appliedInText = regexp.MustCompile(`(?s)<<'YAML'\n(.*?)\nYAML\n`)
	chartInText   = regexp.MustCompile(`helm (?:install|upgrade(?: --install)?) merchant-operator (\S+)`)
)

// Readers copy what the page shows, so Helm and the API server are asked whether they take it.
func TestWhatThePagesShowIsAccepted(t *testing.T) {
	install := repository.Read(t, "docs", "install.md")
	var blocks [][]string
	for _, name := range []string{"install.md", "sizing.md", "console.md"} {
		found := valuesBlock.FindAllStringSubmatch(repository.Read(t, "docs", name), -1)
		if len(found) == 0 {
			t.Errorf("docs/%s shows no values", name)
		}
		blocks = append(blocks, found...)
	}
	for _, block := range blocks {
		values := strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n") // blocks of lists are indented
		kubectl(t, render(t, values).stream(), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
	}
	applied := appliedInText.FindAllStringSubmatch(install, -1)
	if len(applied) == 0 {
		t.Error("docs/install.md applies no merchant")
	}
	for _, manifest := range applied {
		kubectl(t, manifest[1], "apply", "--dry-run=server", "-f", "-")
	}
	for _, name := range []string{"install.md", "upgrade.md"} {
		for _, found := range chartInText.FindAllStringSubmatch(repository.Read(t, "docs", name), -1) {
			if _, err := os.Stat(repository.Path(found[1])); err != nil {
				t.Errorf("docs/%s installs %s: %v", name, found[1], err)
			}
		}
	}
}

// Names in the commands are those of what the chart makes.
func TestThePagesNameWhatIsThere(t *testing.T) {
	text := repository.Read(t, "docs", "install.md") + repository.Read(t, "docs", "upgrade.md")
	all := objects(t, render(t).stream())
	for words, key := range map[string]string{
		"service/merchant-operator-apiserver 8080":   "Service/merchant-operator-apiserver",
		"headless Service `merchant-operator-ops`":   "Service/merchant-operator-ops",
		"delete statefulset merchant-operator-redis": "StatefulSet/merchant-operator-redis",
		"delete crd apikeys.merchant-operator.io":    "CustomResourceDefinition/apikeys.merchant-operator.io",
		"delete namespace " + credentials:            "Namespace/" + credentials,
		"| `merchant-operator-dispatcher` |":         "ServiceAccount/merchant-operator-dispatcher",
	} {
		if !strings.Contains(text, words) {
			t.Errorf("the pages do not say %q", words)
		}
		one(t, all, key)
	}
}
