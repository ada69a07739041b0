package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/internal/commandline"
)

// SeeHelp is the hint that names the help of a command.
func SeeHelp(cmd *cobra.Command) string { return "See: " + cmd.CommandPath() + " --help" }

// FlagError is a usage error that says what a flag accepts.
func FlagError(cmd *cobra.Command, err error) error {
	return Usage(SeeHelp(cmd), "%w", commandline.FlagError(err))
}

// NeedCommand refuses a word that is none of the commands below cmd.
func NeedCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Usage("Use one of: "+strings.Join(commandline.Subcommands(cmd), ", "), "unknown command %q", args[0])
}

// Arguments checks the number of words behind a command. Names are required, those in brackets are not.
func Arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		required := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "[") })
		if required < 0 {
			required = len(names)
		}
		switch {
		case len(args) < required:
			return Usage(SeeHelp(cmd), "%s is missing", names[len(args)])
		case len(args) > len(names):
			return Usage(SeeHelp(cmd), "unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// ReadKey reads the first line, without the key in any error.
func ReadKey(from io.Reader) (string, error) {
	const enough = 64 << 10
	text, err := io.ReadAll(io.LimitReader(from, enough))
	if err != nil {
		return "", fmt.Errorf("read the key from stdin: %w", err)
	}
	key := strings.TrimRight(string(text), "\r\n")
	if key == "" {
		return "", Usage("Pipe the key into it, for example: printenv API_KEY | kubectl merchant explain-401 --key-stdin --from ADDRESS", "there is no key on stdin")
	}
	return key, nil
}
