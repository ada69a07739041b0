package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/devenvtest"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// command is a block of shell commands of a page.
type command struct {
	line   int // of the page
	text   string
	want   string // output, with … for anything
	repeat bool   // until the output is as on the page, which says that it takes a while
}

// notRun are the marks of blocks that the test does not run, and what such a block must be.
var notRun = map[string]string{
	"<!-- started by the test itself -->": "git clone https://github.com/merchant-operator/merchant-operator\ncd merchant-operator\nmake run\n",
	"<!-- needs a cluster -->":            "",
	"<!-- needs gitleaks -->":             "", // test/verify/scanner runs these
	"<!-- runs in CI -->":                 "make test\n",
}

// commands are the blocks of sh of a page. A block of text after one is its output.
func commands(t *testing.T, page string) (found []command) {
	t.Helper()
	var block strings.Builder
	language, mark, start := "", "", 0
	for n, line := range strings.Split(repository.Read(t, page), "\n") {
		switch {
		case language == "" && strings.HasPrefix(line, "```"):
			language, start = strings.TrimPrefix(line, "```"), n+1
			block.Reset()
		case language != "" && line == "```":
			expected, skipped := notRun[mark]
			switch {
			case language == "text" && len(found) > 0:
				found[len(found)-1].want = block.String()
			case language == "sh" && skipped:
				if expected != "" && block.String() != expected {
					t.Errorf("%s:%d: the environment is started with:\n%s", page, start, expected)
				}
			case language == "sh":
				found = append(found, command{line: start, text: block.String(), repeat: mark == "<!-- repeat -->"})
			}
			language, mark = "", ""
		case language != "":
			block.WriteString(line + "\n")
		case line != "":
			mark = line
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no shell commands", page)
	}
	return found
}

// matches says whether an output is as a page shows it, apart from the width of columns.
func (c command) matches(output string) bool {
	var pattern strings.Builder
	for i, part := range strings.Split(strings.Join(strings.Fields(c.want), " "), "…") {
		if i > 0 {
			pattern.WriteString(".*")
		}
		pattern.WriteString(regexp.QuoteMeta(strings.TrimSpace(part)))
	}
	return c.want == "" || regexp.MustCompile("^"+pattern.String()+"$").MatchString(strings.Join(strings.Fields(output), " "))
}

// runPage runs the commands of a page, in order and in one shell, in the directory of `make run`.
func runPage(t *testing.T, run *devenvtest.Run, page string) {
	t.Helper()
	startShell(t, run.Root).runPage(t, page, "")
}

// runPage runs the commands of a page, in order. typed is what a person types where a command reads a key.
func (s *shell) runPage(t *testing.T, page, typed string) {
	t.Helper()
	for _, c := range commands(t, page) {
		c.text = strings.ReplaceAll(c.text, "read -rs KEY\n", "read -rs KEY\n"+typed+"\n")
		if !c.repeat {
			if output := s.run(t, page, c, c.text); !c.matches(output) {
				t.Fatalf("%s:%d: the output is\n%s\nwant\n%s", page, c.line, output, c.want)
			}
			continue
		}
		await.Seeing(t, time.Minute, fmt.Sprintf("%s:%d has the output\n%s\nIt has:", page, c.line, c.want), func() (string, bool) {
			output := s.run(t, page, c, "(\n"+c.text+") || true\n")
			return output, c.matches(output)
		})
	}
}

// shell is a running bash that stops at the first error.
type shell struct {
	input  io.Writer
	output *bufio.Reader
}

func startShell(t *testing.T, directory string) *shell {
	t.Helper()
	port, err := freeport.Choose()
	if err != nil {
		t.Fatal(err)
	}
	bash := exec.Command("bash", "-euo", "pipefail", "-s")
	bash.Dir = directory
	bash.Env = append(os.Environ(), "PORT="+strconv.Itoa(port))
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := bash.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, printed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	bash.Stdout, bash.Stderr = printed, printed
	if err := bash.Start(); err != nil {
		t.Fatal(err)
	}
	_ = printed.Close()
	t.Cleanup(func() {
		_ = input.Close()
		_ = syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) // also what a page left running
		_ = bash.Wait()
		_ = output.Close()
		if log, err := os.ReadFile(filepath.Join(directory, ".dev", "receiver.log")); t.Failed() && err == nil {
			t.Logf("the page's receiver printed\n%s", log)
		}
	})
	return &shell{input: input, output: bufio.NewReader(output)}
}

// run runs commands and returns their output. t fails if one of them ends the shell.
func (s *shell) run(t *testing.T, page string, c command, text string) string {
	t.Helper()
	const end = "--- end of the commands"
	if _, err := io.WriteString(s.input, text+"printf '\\n%s\\n' '"+end+"'\n"); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	for {
		line, err := s.output.ReadString('\n')
		if line == end+"\n" {
			return output.String()
		}
		output.WriteString(line)
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s:%d: a command failed:\n%s\nOutput:\n%s", page, c.line, c.text, &output)
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
