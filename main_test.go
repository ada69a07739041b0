package main

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// execute runs a command line that ends before it serves anything.
func execute(args ...string) error {
	root := newCommand()
	root.SetArgs(args)
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	return root.Execute()
}

func allCommands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, allCommands(sub)...)
	}
	return all
}

// The examples get as far as a Redis that is not there, and name events as Redis does.
func TestExamplesInHelpAreValid(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	examples := 0
	for _, cmd := range allCommands(newCommand()) {
		for line := range strings.Lines(cmd.Example) {
			examples++
			args := strings.Fields(line)
			if err := execute(args[1:]...); err == nil || !strings.Contains(err.Error(), "redis is unavailable") {
				t.Errorf("%s: %v", strings.TrimSpace(line), err)
			}
			for _, arg := range args {
				if strings.HasPrefix(arg, "evt_") && !regexp.MustCompile(`^evt_[0-3][0-9a-f][0-9A-Za-z]{24}_ended$`).MatchString(arg) {
					t.Errorf("%s is not the id of an event", arg)
				}
			}
		}
	}
	if examples < 3 {
		t.Errorf("found %d examples", examples)
	}
}
