// Command merchant-operator is one binary with a role for each Deployment: the operator that
// publishes merchants and keys, the apiserver that takes their charges, and the dispatcher that tells
// them how those end.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is stamped by the linker (make build).
var version = "devel"

func main() {
	// The first signal begins an orderly stop; a second one ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "merchant-operator:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "merchant-operator",
		Short: "Onboard merchants with kubectl apply, charge through an HTTP API",
		Long: "merchant-operator manages merchants and their API keys as Kubernetes custom resources and\n" +
			"serves the payment session API that those keys open, and tells merchants of what became of their\n" +
			"sessions by webhook. Each role is one Deployment.",
		Version:           version,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	var level slog.Level
	root.PersistentFlags().TextVar(&level, "log-level", slog.LevelInfo, "lowest level that is logged: DEBUG, INFO, WARN or ERROR")
	logger := func() *slog.Logger {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	}
	root.AddCommand(operatorCommand(logger), apiserverCommand(logger), dispatcherCommand(logger), deadLettersCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), version) },
	}
}
