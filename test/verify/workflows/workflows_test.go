// Package workflows checks the GitHub workflows that test and release.
package workflows

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/merchant-operator/merchant-operator/test/repository"
	"sigs.k8s.io/yaml"
)

var (
	use    = regexp.MustCompile(`uses: +(\S+)(.*)`)
	pinned = regexp.MustCompile(`^[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+@[0-9a-f]{40}$`)
	exact  = regexp.MustCompile(`^ # v\d+\.\d+\.\d+$`)
	script = regexp.MustCompile(`(?:hack|\.ci)/[a-z/]+(?:\.sh|run)\b`)
)

type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		Permissions map[string]string `json:"permissions"`
		Needs       needs             `json:"needs"`
		Uses        string            `json:"uses"`
		Environment string            `json:"environment"`
		Steps       []struct {
			Uses string         `json:"uses"`
			Run  string         `json:"run"`
			With map[string]any `json:"with"`
		} `json:"steps"`
	} `json:"jobs"`
}

// needs is the jobs that a job waits for. One of them may stand without a list.
type needs []string

func (n *needs) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*n = needs{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(n))
}

func workflows(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(repository.Path(".github", "workflows", "*.yml"))
	if err != nil || len(paths) < 2 {
		t.Fatalf("found the workflows %v (%v)", paths, err)
	}
	texts := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(path)] = string(text)
	}
	return texts
}

func decode(t *testing.T, text string) workflow {
	t.Helper()
	var out workflow
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// A tag of an action can be moved to other code by an attacker in its repository; a commit cannot.
func TestActions_PinnedByCommit(t *testing.T) {
	for name, text := range workflows(t) {
		for _, found := range use.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(found[1], "./") {
				continue
			}
			if !pinned.MatchString(found[1]) || !exact.MatchString(found[2]) {
				t.Errorf("%s uses %s%s, which is not a commit with its version beside it", name, found[1], found[2])
			}
		}
	}
}

// What README tells a newcomer to run is what CI runs.
func TestCI_RunsTestsOfREADME(t *testing.T) {
	found := regexp.MustCompile("(?s)<!-- runs in CI -->\n```sh\n(.*?)```").FindStringSubmatch(repository.Read(t, "README.md"))
	if found == nil {
		t.Fatal("README has no command that runs in CI")
	}
	if !strings.Contains(repository.Read(t, ".ci", "run"), "\n"+found[1]) {
		t.Errorf(".ci/run does not run %s", found[1])
	}
}

// The rights of each job, written down a second time: more of them is a decision, not an edit.
func TestJobs_Rights(t *testing.T) {
	read := map[string]string{"contents": "read"}
	want := map[string]map[string]string{
		"ci.yml":               read,
		"ci.yml ci":            nil,
		"ci.yml dockerfile":    nil,
		"ci.yml redis":         nil,
		"nightly.yml":          read,
		"nightly.yml gitops":   nil,
		"nightly.yml fuzz":     nil,
		"nightly.yml faults":   nil,
		"release.yml":          {},
		"release.yml test":     read,
		"release.yml e2e":      read,
		"release.yml assemble": read,
		"release.yml publish":  {"contents": "read", "packages": "write", "id-token": "write", "attestations": "write"},
		"release.yml announce": {"contents": "write"},

		"e2e.yml":     read,
		"e2e.yml e2e": nil,

		"security.yml":              {},
		"security.yml codeql":       {"contents": "read", "security-events": "write"},
		"security.yml scorecard":    {"contents": "read", "security-events": "write", "id-token": "write"},
		"security.yml dependencies": read,

		"vulnerabilities.yml":             read,
		"vulnerabilities.yml govulncheck": nil,
	}
	got := map[string]map[string]string{}
	for name, text := range workflows(t) {
		one := decode(t, text)
		got[name] = one.Permissions
		for job, content := range one.Jobs {
			got[name+" "+job] = content.Permissions
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights of the jobs (-want +got):\n%s", diff)
	}
}

func TestSteps_Safe(t *testing.T) {
	for name, text := range workflows(t) {
		for job, content := range decode(t, text).Jobs {
			for _, step := range content.Steps {
				// What an expression yields would be run: the name of a branch is anybody's.
				if strings.Contains(step.Run, "${{") {
					t.Errorf("%s %s runs an expression; hand it over in env:\n%s", name, job, step.Run)
				}
				if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
					t.Errorf("%s %s leaves its token in the working tree", name, job)
				}
				for _, path := range script.FindAllString(step.Run, -1) {
					if info, err := os.Stat(repository.Path(path)); err != nil || info.Mode()&0o111 == 0 {
						t.Errorf("%s %s runs %s, which is no program (%v)", name, job, path, err)
					}
				}
			}
		}
	}
}

// Nobody's cache and nobody's single account decides what is released, and nothing is released that was not tried in a cluster.
func TestRelease_Guarded(t *testing.T) {
	release := decode(t, workflows(t)["release.yml"])
	for _, job := range []string{"test", "e2e", "assemble"} {
		if !slices.Contains(release.Jobs["publish"].Needs, job) {
			t.Errorf("publish does not wait for %s", job)
		}
	}
	if release.Jobs["publish"].Environment == "" {
		t.Error("the job that publishes has no environment, whose reviewers could hold it")
	}
	for job, content := range release.Jobs {
		for _, step := range content.Steps {
			if strings.HasPrefix(step.Uses, "actions/cache") || strings.HasPrefix(step.Uses, "actions/setup-go@") && step.With["cache"] != false {
				t.Errorf("%s uses a cache, which other workflows can write", job)
			}
		}
	}
}
