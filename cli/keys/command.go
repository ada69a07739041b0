// Package keys issues, rotates, disables and reveals API keys. It also has what commands share that write objects: the flags, the creation, and
// the wait for the operator.
package keys

import (
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/commandline"
)

// commands are the commands of this room.
type commands struct {
	genericiooptions.IOStreams

	access *cluster.Access
	now    func() time.Time
}

// Command returns kubectl merchant keys.
func Command(access *cluster.Access, streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	c := &commands{streams, access, now}
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Issue, rotate, disable, enable and reveal API keys",
		Args:  terminal.NeedCommand,
		RunE:  commandline.PrintHelp,
	}
	cmd.AddCommand(c.issueCommand(), c.rotateCommand(), c.stateCommand("disable", v1alpha1.ApiKeyDisabled), c.stateCommand("enable", v1alpha1.ApiKeyActive), c.revealCommand())
	return cmd
}
