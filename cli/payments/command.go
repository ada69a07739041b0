// Package payments shows the payments of a merchant and follows its events, as the API answers them to one of the merchant's keys: payments list, show,
// export and refund, and listen.
package payments

import (
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

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

// Command returns kubectl merchant payments.
func Command(access *cluster.Access, streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	c := &commands{streams, access, now}
	cmd := &cobra.Command{
		Use:   "payments",
		Short: "List, show, export and refund payments",
		Args:  terminal.NeedCommand,
		RunE:  commandline.PrintHelp,
	}
	cmd.AddCommand(c.listPaymentsCommand(), c.showPaymentCommand(), c.exportPaymentsCommand(), c.refundCommand())
	return cmd
}
