package cli

import (
	"fmt"
	"io"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// printError prints an error for people, and returns the exit code.
func printError(to io.Writer, err error) int {
	if missing, ok := cluster.ParseForbidden(err); ok {
		fmt.Fprint(to, missing)
		return terminal.ExitError
	}
	code := terminal.PrintError(to, err, cluster.DescribeError)
	if code == terminal.ExitError && cluster.NotInstalled(err) {
		fmt.Fprintln(to, "Is merchant-operator installed in this cluster? kubectl config current-context prints which one it is.")
	}
	return code
}
