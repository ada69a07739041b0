package support

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// VersionCommand returns kubectl merchant version. plugin is the version of this program.
func VersionCommand(access *cluster.Access, streams genericiooptions.IOStreams, plugin string) *cobra.Command {
	c := &commands{IOStreams: streams, access: access, version: plugin}
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this plugin and of the installed product",
		Long:  "Show the versions of this plugin and of the installed product, and warn if they differ.",
		Example: "  kubectl merchant version\n" +
			"  kubectl merchant version --client",
		Args: terminal.Arguments(),
	}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "show only the version of this plugin, and ask no cluster")
	out := terminal.AddOutput(cmd, terminal.FormatJSON, terminal.FormatYAML)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		versions := versions{Client: c.version}
		if !clientOnly {
			kube, err := c.access.Connect()
			if err != nil {
				return err
			}
			var deployments appsv1.DeploymentList
			if err := kube.List(cmd.Context(), &deployments, client.InNamespace(c.access.SystemNamespace), client.MatchingLabels{cluster.ProductLabel: cluster.Product}); err != nil {
				return fmt.Errorf("list Deployments: %w", err)
			}
			versions.Server = installedVersions(deployments.Items)
		}
		for _, warning := range versions.warnings(c.access.SystemNamespace, clientOnly) {
			fmt.Fprintln(c.ErrOut, "warning: "+warning)
		}
		return out.Write(c.Out, versions, func(to io.Writer) error {
			table := terminal.NewTable(to)
			terminal.Row(table, "Client", versions.Client)
			for _, server := range versions.Server {
				terminal.Row(table, "Server", server.Version, server.Role)
			}
			return table.Flush()
		})
	}
	return cmd
}

// versions are the versions of the plugin and of the installed roles; -o json prints them.
type versions struct {
	Client string        `json:"client"`
	Server []roleVersion `json:"server,omitempty"`
}

type roleVersion struct {
	Role    string `json:"role"`
	Version string `json:"version"`
}

func installedVersions(deployments []appsv1.Deployment) (installed []roleVersion) {
	for i := range deployments {
		installed = append(installed, roleVersion{deployments[i].Labels[cluster.RoleLabel], imageTag(&deployments[i])})
	}
	return installed
}

// imageTag is the version of the first container; empty: it is named by digest only.
func imageTag(deployment *appsv1.Deployment) string {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		image, _, _ := strings.Cut(container.Image, "@")
		if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
			return image[colon+1:]
		}
	}
	return ""
}

// warnings are about versions that do not fit together: the fields of a manifest come and go with minor versions.
func (v versions) warnings(namespace string, clientOnly bool) (warnings []string) {
	if len(v.Server) == 0 && !clientOnly {
		warnings = append(warnings, fmt.Sprintf("there is no Deployment of %s in namespace %s; set --system-namespace", cluster.Product, namespace))
	}
	seen := map[string]bool{}
	for _, server := range v.Server {
		if seen[server.Version] || sameMinor(v.Client, server.Version) {
			continue
		}
		seen[server.Version] = true
		warnings = append(warnings, fmt.Sprintf("this plugin is %s and the %s is %s; install the plugin of that version", v.Client, server.Role, server.Version))
	}
	return warnings
}

// sameMinor compares major and minor version. Builds without a version are only equal to themselves.
func sameMinor(a, b string) bool {
	one, err := version.ParseGeneric(strings.TrimPrefix(a, "v"))
	other, otherErr := version.ParseGeneric(strings.TrimPrefix(b, "v"))
	if err != nil || otherErr != nil {
		return a == b
	}
	return one.Major() == other.Major() && one.Minor() == other.Minor()
}
