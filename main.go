// Command merchant-operator is one binary with four roles: the operator publishes merchants and keys, the
// apiserver serves the payment session API, the dispatcher delivers webhooks, and the console serves web pages to merchants.
// Under the name kubectl-merchant it is a plugin of kubectl.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // spec.timeZone: the image has no database of time zones

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/cli"
	"github.com/merchant-operator/merchant-operator/internal/commandline"
)

// version is stamped by the linker (make build).
var version = "devel"

func main() {
	// The first signal begins an orderly stop; a second one ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if args, ok := cli.Args(os.Args); ok {
		os.Exit(cli.Execute(ctx, version, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, args))
	}
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "merchant-operator:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "merchant-operator",
		Short: "Onboard merchants with kubectl apply, take payments through an HTTP API",
		Long: "merchant-operator manages merchants and their API keys as Kubernetes custom resources,\n" +
			"serves the payment session API, delivers signed webhooks, and serves a console to merchants.\n" +
			"Run each role as a Deployment.",
		Version:           version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              needCommand,
		RunE:              commandline.PrintHelp,
	}
	root.SetFlagErrorFunc(flagError)
	level := logLevel(slog.LevelInfo)
	root.PersistentFlags().Var(&level, "log-level", "lowest level to log: DEBUG, INFO, WARN or ERROR")
	logger := func() *slog.Logger {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.Level(level)}))
	}
	root.AddCommand(operatorCommand(logger), apiserverCommand(logger), dispatcherCommand(logger), consoleCommand(logger), deadLettersCommand(), endLoginsCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version)
			return err
		},
	}
}
