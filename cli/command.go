// Package cli is kubectl merchant: commands for people who manage merchants and their keys, and who find out why a key is refused.
//
// Data goes to stdout, everything else to stderr, both escaped (terminal.Escape). A key is read from stdin only, and printed only by a command that was
// asked for it.
package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/explain"
	"github.com/merchant-operator/merchant-operator/cli/keys"
	"github.com/merchant-operator/merchant-operator/cli/merchants"
	"github.com/merchant-operator/merchant-operator/cli/payments"
	"github.com/merchant-operator/merchant-operator/cli/plan"
	"github.com/merchant-operator/merchant-operator/cli/support"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/cli/webhooks"
	"github.com/merchant-operator/merchant-operator/internal/commandline"
)

// Args returns the arguments of the plugin, if the program runs under one of its names. kubectl runs kubectl_complete-merchant for the
// tab key.
func Args(command []string) (args []string, ok bool) {
	switch strings.TrimSuffix(filepath.Base(command[0]), ".exe") {
	case "kubectl-merchant":
		return command[1:], true
	case "kubectl_complete-merchant":
		return append([]string{cobra.ShellCompRequestCmd}, command[1:]...), true
	}
	return nil, false
}

// Execute runs the command line behind the plugin's name, and returns the exit code: 0 done, 1 error, 2 usage, 3 not ready, 4 a plan ends something.
func Execute(ctx context.Context, version string, streams genericiooptions.IOStreams, args []string) int {
	out := terminal.Escape(streams.Out)
	streams.Out, streams.ErrOut = out, terminal.Escape(streams.ErrOut)
	klog.SetOutput(streams.ErrOut)
	root := newCommand(version, streams) //nolint:contextcheck // cobra passes ctx to the command that runs
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if out.Err() != nil && (err == nil || terminal.Answered(err)) { // whatever was done: nobody has read it, and a pipeline would go on with nothing
		err = fmt.Errorf("write the output: %w", out.Err())
	}
	if err == nil {
		return terminal.ExitDone
	}
	return printError(streams.ErrOut, err)
}

// newCommand is the table of contents: each command is in the room that is named here.
func newCommand(version string, streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:         "kubectl-merchant",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl merchant"},
		Short:       "Manage merchants and their API keys, and find out why a key is refused",
		Long: "Manage merchants and their API keys, and find out why a key is refused.\n\n" +
			"Exit codes: 0 done, 1 error, 2 wrong usage, 3 not ready or refused, 4 a plan ends something.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          terminal.NeedCommand,
		RunE:          commandline.PrintHelp,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(terminal.FlagError)
	access, now := cluster.NewAccess(root.PersistentFlags(), version, streams.ErrOut), time.Now
	_ = root.RegisterFlagCompletionFunc("context", access.CompleteContexts) // fails only for an unknown flag
	root.AddCommand(
		merchants.StatusCommand(access, streams, now),
		merchants.OnboardCommand(access, streams, now),
		keys.Command(access, streams, now),
		explain.Command(access, streams, now),
		explain.AllowlistCommand(access, streams),
		plan.Command(access, streams, now),
		webhooks.Command(access, streams, now),
		payments.Command(access, streams, now),
		payments.ListenCommand(access, streams, now),
		support.ReportCommand(access, streams, now, version),
		support.VersionCommand(access, streams, version),
	)
	return root
}
