package examples

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// followers are the programs that follow the feed.
func followers() []example {
	return []example{
		{"curl", []string{"bash", repository.Path("examples", "curl", "follow.sh")}, false},
		{"Python", []string{"python3", repository.Path("examples", "python", "follow.py")}, false},
	}
}

// A till without a webhook learns of each end, in order: while the network fails, and after the program was killed.
func TestFollow_EachEndInOrder(t *testing.T) {
	t.Parallel()
	for _, e := range followers() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			p := newProxy(t, lost, cut, status(http.StatusServiceUnavailable, "1"))
			file := filepath.Join(t.TempDir(), "position")
			env := []string{"API_URL=" + p.url, "API_KEY=" + s.key, "TMPDIR=" + t.TempDir()}
			var want []string
			end := func(order, outcome, line string) {
				t.Helper()
				s.settle(s.create(order), outcome)
				want = append(want, line+" order "+order)
			}
			end("1001", "COMPLETED", "deliver")
			first := start(t, e, env, file)
			end("1002", "FAILED", "cancel")
			s.Eventually("it has printed both", func() bool { return len(first.lines()) >= 2 })
			s.Eventually("it has saved a position", func() bool {
				saved, err := os.ReadFile(file)
				return err == nil && len(saved) > 0
			})
			_ = syscall.Kill(-first.command.Process.Pid, syscall.SIGKILL)
			<-first.ended
			for n := range 3 {
				end(fmt.Sprint("while-away-", n), "COMPLETED", "deliver")
			}
			second := start(t, e, env, file)
			end("1003", "COMPLETED", "deliver")
			s.Eventually("it has printed the rest", func() bool { return slices.Contains(second.lines(), "deliver order 1003") })
			var got []string
			for _, line := range slices.Concat(first.lines(), second.lines()) {
				if !slices.Contains(got, line) { // what was handled and not saved when it was killed comes again
					got = append(got, line)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, &second.stderr)
			}
			if text := first.stderr.String() + second.stderr.String(); strings.Contains(text, s.key) {
				t.Error("the key is printed")
			}
		})
	}
}

// What nobody can help ends the program, and says why.
func TestFollow_KeyRefused(t *testing.T) {
	t.Parallel()
	for _, e := range followers() {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, e, []string{"API_URL=" + api.Public, "API_KEY=of-nobody-0123456789012345678901234567890"}, filepath.Join(t.TempDir(), "position"))
			if code := p.exit(t); code != 1 || !strings.Contains(p.stderr.String(), "refused: 401") {
				t.Errorf("exit code %d\n%s", code, &p.stderr)
			}
		})
	}
}
