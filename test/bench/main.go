// Command bench measures the roles in turn with programs that do the unavoidable minimum ("floors"), so that it can print ratios that
// depend little on the machine. `make bench NAME=COMMAND` runs its commands; docs/performance.md has the results.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/merchant-operator/merchant-operator/test/bench/api"
	"github.com/merchant-operator/merchant-operator/test/bench/cluster"
	"github.com/merchant-operator/merchant-operator/test/bench/console"
	"github.com/merchant-operator/merchant-operator/test/bench/directory"
	"github.com/merchant-operator/merchant-operator/test/bench/dispatcher"
	"github.com/merchant-operator/merchant-operator/test/bench/operator"
	"github.com/merchant-operator/merchant-operator/test/bench/streams"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "bench",
		Short: "Measure the roles",
		Long: "Each command starts a kube-apiserver, Redis and a role on this machine, measures it, and prints tables and a line\n" +
			"\"ratio NAME VALUE\" for each result. Progress goes to stderr. docs/performance.md has the results.\n\n" +
			"KUBEBUILDER_ASSETS is the directory of kube-apiserver and etcd (make sets it). BENCH_ROUNDS, BENCH_SECONDS and\n" +
			"BENCH_EVENTS set the flags --rounds, --seconds and --events of the commands that have them.",
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return completeFlags(cmd.Flags()) },
		Args:              cobra.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(api.Command(), streams.Command(), streams.StormCommand(), console.Command(), operator.Command(), dispatcher.Command(), directory.Command(), cluster.Command())
	root.AddCommand(api.ServeCommand(), dispatcher.PostCommand(), streams.PayersCommand())
	for _, command := range root.Commands() {
		command.Args = cobra.NoArgs
	}
	return root
}

// completeFlags sets flags from the environment. No number may be 0.
func completeFlags(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(flag *pflag.Flag) {
		variable := "BENCH_" + strings.ToUpper(flag.Name)
		switch {
		case err != nil || flag.Value.Type() != "int" && flag.Value.Type() != "float64":
			return
		case !flag.Changed && os.Getenv(variable) != "":
			if err = flags.Set(flag.Name, os.Getenv(variable)); err != nil {
				err = fmt.Errorf("%s: %w", variable, err)
				return
			}
		}
		if number, _ := strconv.ParseFloat(flag.Value.String(), 64); number <= 0 {
			err = fmt.Errorf("--%s=%s: use a number above 0", flag.Name, flag.Value)
		}
	})
	return err
}
