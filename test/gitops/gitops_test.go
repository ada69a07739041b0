//go:build gitops

package gitops

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/fluxtest"
)

// line is a row of the table: what was committed, how the sync ended, and what else a person sees.
type line struct {
	commit string
	result fluxtest.Result
	sees   string
}

// change is something that a pipeline does, and ends as it began but for its own shop: the Kustomization is Ready.
type change struct {
	name string
	try  func(s step) []line
}

// step is a change that is being tried. What it does not get fails the test.
type step struct {
	*pipeline

	T *testing.T
}

// changes are in the order of the table. Each has shops of its own.
func changes() []change {
	return slices.Concat(rotations(), states(), allowlists(), mistakes(), deletions(), recoveries())
}

// TestGitOps starts with the commands of the page and then tries each change, one after the other: they share the repository.
func TestGitOps(t *testing.T) {
	deployed := make(chan error, 1)
	go func() { deployed <- shared.runDeployments(context.Background()) }()
	if !t.Run("onboard", func(t *testing.T) { shared.runPage(t) }) {
		t.FailNow()
	}
	if err := <-deployed; err != nil {
		t.Fatal(err)
	}
	onboarded := step{shared, t}
	lines := []line{onboarded.seeOnboarded()}
	onboarded.giveUpSoon()
	tried := 0
	for _, c := range changes() {
		t.Run(c.name, func(t *testing.T) {
			tried++
			lines = append(lines, c.try(step{shared, t})...)
		})
	}
	var table strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&table, "| %s | %s | %.0f | %s |\n", l.commit, l.kustomization(), l.result.Took.Seconds(), l.sees)
	}
	t.Logf("\n%s%s", tableHead, &table)
	if !t.Failed() && tried == len(changes()) { // -run may have selected some
		comparePage(t, table.String())
	}
}

// giveUpSoon has a commit that cannot become Ready given up after the least time that Flux waits, not after the minutes of the page.
func (s step) giveUpSoon() {
	s.T.Helper()
	s.flux.Change(s.T, merchants, `{"spec":{"timeout":"30s","retryInterval":"2s"}}`)
}

// kustomization is how the sync ended, without what differs from run to run.
func (l line) kustomization() string {
	if l.result.Ready {
		return "Ready"
	}
	message := l.result.Message
	message = revisions.ReplaceAllString(message, "…")
	message = policies.ReplaceAllString(message, "… ")
	message = durations.ReplaceAllString(message, "… s")
	message = lists.ReplaceAllStringFunc(message, func(list string) string {
		entries := strings.Split(strings.Trim(list, "[]"), ", ")
		slices.Sort(entries)
		return "[" + strings.Join(entries, ", ") + "]"
	})
	message = commands.ReplaceAllString(strings.Join(strings.Fields(message), " "), "…")
	return "not Ready, `" + l.result.Reason + "`: " + message
}

var (
	revisions = regexp.MustCompile(`main@sha1:[0-9a-f]{40}`)
	durations = regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?(µs|ms|s)\b`)
	policies  = regexp.MustCompile(`ValidatingAdmissionPolicy .* denied request: `)
	commands  = regexp.MustCompile(`kubectl patch .*`)
	lists     = regexp.MustCompile(`\[[^\]]*\]`)
)
