//go:build faults

package faults

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	days "github.com/merchant-operator/merchant-operator/internal/payments"
)

// railJournal is the rail's own book of the money that it has moved, one file for each seller: lines of "<session id>,<payment reference>,<cents>",
// cents negative if they were sent back. It is safe for concurrent use.
type railJournal struct {
	t   *testing.T
	dir string
}

func newRailJournal(t *testing.T) *railJournal {
	t.Helper()
	return &railJournal{t, t.TempDir()}
}

func (j *railJournal) file(seller int) string {
	return filepath.Join(j.dir, fmt.Sprintf("seller-%d.csv", seller))
}

// write appends a line.
func (j *railJournal) write(seller int, id, ref string, cents int) {
	file, err := os.OpenFile(j.file(seller), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, "%s,%s,%d\n", id, ref, cents) // one write: lines do not mix
		_ = file.Close()
	}
	if err != nil {
		j.t.Error(err)
	}
}

// auditDays compares what `kubectl merchant payments export` says of the days of the soak with what the rail has moved, to the cent. Another
// program adds up: day.py, which knows neither ours nor our tests. That it notices a cent is tried too.
func (s *soak) auditDays(began time.Time) string {
	s.t.Helper()
	plugin := filepath.Join(s.t.TempDir(), "kubectl-merchant")
	s.must(os.Symlink(shared.program, plugin))
	var all strings.Builder
	for n, own := range s.sellers {
		zone := own.merchant.Spec.TimeZone.Location()
		files := []string{s.moved.file(n)}
		for day := range daysFrom(began, zone) {
			files = append(files, s.exportDay(plugin, *s.keys[n].Load(), day))
		}
		said, err := addUp(files...)
		if err != nil {
			s.t.Errorf("the days of seller %d in %s: %v: %s", n, zone, err, said)
		}
		fmt.Fprintf(&all, "seller %d in %s: %s", n, zone, said)
		if said, err := addUp(append([]string{s.oneCentMore(n)}, files[1:]...)...); err == nil {
			s.t.Errorf("a cent that is missing in the days of seller %d is not noticed: %s", n, said)
		}
	}
	return all.String()
}

// daysFrom are the days of a shop since a time.
func daysFrom(since time.Time, zone *time.Location) map[days.Day]bool {
	all := map[days.Day]bool{days.DayAt(time.Now(), zone): true}
	for at := since; at.Before(time.Now()); at = at.Add(time.Hour) {
		all[days.DayAt(at, zone)] = true
	}
	return all
}

// exportDay returns the file with the CSV of a day.
func (s *soak) exportDay(plugin, key string, day days.Day) (file string) {
	s.t.Helper()
	export := exec.CommandContext(s.t.Context(), plugin, "payments", "export", "--key-env", "--api-url", s.replicas[0].public, "--day", day.String())
	export.Env = append(os.Environ(), "API_KEY="+key)
	var out, said bytes.Buffer
	export.Stdout, export.Stderr = &out, &said
	if err := export.Run(); err != nil {
		s.t.Fatalf("export %s: %v: %s", day, err, &said)
	}
	file = filepath.Join(s.t.TempDir(), day.String()+".csv")
	s.must(os.WriteFile(file, out.Bytes(), 0o600))
	return file
}

// oneCentMore returns a copy of a journal whose last payment has a cent more.
func (s *soak) oneCentMore(seller int) (file string) {
	s.t.Helper()
	journal, err := os.ReadFile(s.moved.file(seller))
	s.must(err)
	lines := strings.Split(strings.TrimSpace(string(journal)), "\n")
	payment := strings.Split(lines[len(lines)-1], ",")
	file = filepath.Join(s.t.TempDir(), "journal.csv")
	s.must(os.WriteFile(file, fmt.Appendf(journal, "%s,%s,1\n", payment[0], payment[1]), 0o600))
	return file
}

// addUp compares a journal with the CSV files of days, and returns what the program says.
func addUp(files ...string) (said string, err error) {
	out, err := exec.Command("python3", append([]string{"day.py"}, files...)...).CombinedOutput()
	return string(out), err
}
