// Package commandline has what the program and its kubectl plugin say of a wrong command line.
package commandline

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// accepted are the values of flags, by their type. Other types say it themselves.
var accepted = map[string]string{
	"bool":     "true or false",
	"duration": "a time such as 500ms, 30s, 15m or 24h",
	"int":      "a whole number",
	"int32":    "a whole number up to 2147483647",
	"level":    "DEBUG, INFO, WARN or ERROR",
}

// FlagError returns the error of parsing flags, with what an invalid one accepts.
func FlagError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := invalid.GetFlag()
	if values := accepted[flag.Value.Type()]; values != "" {
		return fmt.Errorf("--%s must be %s, not %q", flag.Name, values, invalid.GetValue())
	}
	return fmt.Errorf("--%s: %w", flag.Name, invalid.Unwrap())
}

// Subcommands returns the names of the commands below cmd that people use.
func Subcommands(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			names = append(names, sub.Name())
		}
	}
	return names
}

// PrintHelp makes a command without work of its own runnable: cobra checks the words behind no other.
func PrintHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }
