// Package cli is kubectl merchant: commands for people who manage merchants and their keys, and who find out why a key is refused.
//
// Data goes to stdout, everything else to stderr, both through an escapingWriter. A key is read from stdin only, and printed only by a command that was asked for it.
package cli

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/commandline"
)

// plugin is what all commands share.
type plugin struct {
	genericiooptions.IOStreams

	version string
	config  clientcmd.ClientConfig
	now     func() time.Time
	// systemNamespace and credentialsNamespace are where the product is installed.
	systemNamespace, credentialsNamespace string
}

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
	streams.Out, streams.ErrOut = terminal.Escape(streams.Out), terminal.Escape(streams.ErrOut)
	klog.SetOutput(streams.ErrOut)
	root := newCommand(version, streams) //nolint:contextcheck // cobra passes ctx to the command that runs
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return terminal.ExitDone
	}
	return printError(streams.ErrOut, err)
}

func newCommand(version string, streams genericiooptions.IOStreams) *cobra.Command {
	p := &plugin{IOStreams: streams, version: version, now: time.Now}
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
	p.config = kubeconfigFlags(root.PersistentFlags())
	namespaces := root.PersistentFlags()
	namespaces.StringVar(&p.systemNamespace, "system-namespace", "merchant-operator-system", "namespace of the operator, the API and the dispatcher")
	namespaces.StringVar(&p.credentialsNamespace, "credentials-namespace", "merchant-operator-credentials", "namespace of the published objects")
	p.registerCompletion(root)
	root.AddCommand(p.statusCommand(), p.onboardCommand(), p.keysCommand(), p.explainCommand(), p.allowlistCommand(), p.planCommand(), p.webhooksCommand(), p.paymentsCommand(),
		p.listenCommand(), p.reportCommand(), p.versionCommand())
	return root
}

// kubeconfigFlags adds the flags of kubectl that say which cluster, and who. Those with secrets are not among them. They are those
// of cli-runtime's ConfigFlags, whose package would add kustomize and 30 MB to the binary of all roles.
func kubeconfigFlags(flags *pflag.FlagSet) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	flags.StringVar(&rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "kubeconfig file; empty: $KUBECONFIG, then ~/.kube/config")
	overrides := &clientcmd.ConfigOverrides{}
	flags.StringVar(&overrides.CurrentContext, clientcmd.FlagContext, "", "context of the kubeconfig; empty: the current one")
	flags.StringVarP(&overrides.Context.Namespace, clientcmd.FlagNamespace, "n", "", "namespace; empty: that of the context")
	flags.StringVar(&overrides.Context.Cluster, clientcmd.FlagClusterName, "", "cluster of the kubeconfig; empty: that of the context")
	flags.StringVar(&overrides.Context.AuthInfo, clientcmd.FlagAuthInfoName, "", "user of the kubeconfig; empty: that of the context")
	flags.StringVar(&overrides.AuthInfo.Impersonate, clientcmd.FlagImpersonate, "", "user to act as; needs the right to impersonate")
	flags.StringArrayVar(&overrides.AuthInfo.ImpersonateGroups, clientcmd.FlagImpersonateGroup, nil, "group to act as; may be repeated")
	flags.StringVar(&overrides.Timeout, clientcmd.FlagTimeout, "", "time limit of one request to the cluster, such as 30s; empty: none")
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}
