package plan

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// Formats of a plan.
const (
	formatText     = "text"
	formatMarkdown = "markdown"
)

// Command returns kubectl merchant plan.
func Command(access *cluster.Access, streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	var files []string
	var prune, allNamespaces bool
	cmd := &cobra.Command{
		Use:   "plan -f DIR",
		Short: "Show what ends if manifests are applied: keys, overlaps, addresses, events",
		Long: "Show what ends if the Merchants and ApiKeys of manifests are applied: which keys are replaced or refused and when they were last used, " +
			"which addresses and events. The API server checks the manifests in a dry run, so the rights to apply them are needed; nothing is written, and no Secret is read.\n\n" +
			"The exit code is 0 if nothing ends or is refused, and 4 if something does or may.",
		Example: "  kubectl merchant plan -f merchants\n" +
			"  kubectl merchant plan -f merchants --prune -o markdown\n" +
			"  cat merchants/*.yaml | kubectl merchant plan -f - -o json",
		Args: terminal.Arguments(),
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&files, "filename", "f", nil, "directory, with all below it, or file; -: standard input; may be repeated")
	flags.BoolVar(&prune, "prune", false, "include objects that are not in the manifests and that the same GitOps tool or kubectl apply manages, as if it deleted them")
	flags.BoolVarP(&allNamespaces, "all-namespaces", "A", false, "with --prune: look in all namespaces, not only in those of the manifests")
	out := terminal.AddOutput(cmd, formatText, terminal.FormatJSON, formatMarkdown)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case len(files) == 0:
			return terminal.Usage(terminal.SeeHelp(cmd), "--filename is missing")
		case allNamespaces && !prune:
			return terminal.Usage("Add --prune, or leave out -A.", "--all-namespaces is for --prune")
		}
		manifests := &Manifests{}
		for _, file := range files {
			if err := manifests.Read(file, streams.In); err != nil {
				return manifestError(err)
			}
		}
		kube, err := access.Connect()
		if err != nil {
			return err
		}
		if err := manifests.Default(kube.Namespace); err != nil {
			return manifestError(err)
		}
		planner := &planner{Cluster: kube, manifests: manifests, state: State{Now: now()}}
		if err := planner.run(cmd.Context(), prune, allNamespaces); err != nil {
			return err
		}
		return writePlan(streams.Out, NewReport(planner.state, manifests.Ignored), out.Format)
	}
	return cmd
}

// manifestError may quote a manifest, which may contain anything.
func manifestError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return terminal.Usage("Name a directory or a file with YAML or JSON.", "read the manifests: %w", err)
	}
	return fmt.Errorf("read the manifests: %s", Plain(err.Error()))
}

func writePlan(to io.Writer, report Report, format string) error {
	write := report.WriteText
	switch format {
	case terminal.FormatJSON:
		write = report.WriteJSON
	case formatMarkdown:
		write = report.WriteMarkdown
	}
	if err := write(to); err != nil {
		return err
	}
	if report.Ends {
		return terminal.ErrEnds
	}
	return nil
}
