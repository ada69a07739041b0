// Package cluster is how commands reach a cluster: the kubeconfig with its flags, the Kubernetes API with the rights of the person, names that are
// completed or mistyped, and the words for what the API server refuses.
package cluster

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	kubeclient "github.com/merchant-operator/merchant-operator/internal/kube"
)

// FieldOwner owns what the commands write, but for the state of a key. It is also the name of the program to others.
const FieldOwner = "kubectl-merchant"

// Labels of what belongs to the installed product.
const (
	ProductLabel = "app.kubernetes.io/name"
	Product      = "merchant-operator"
	RoleLabel    = "app.kubernetes.io/component"
)

// Access says which cluster, as whom, and where the product is installed there. Flags of the command line set it.
type Access struct {
	// SystemNamespace and CredentialsNamespace are where the product is installed.
	SystemNamespace, CredentialsNamespace string

	kubeconfig clientcmd.ClientConfig
	version    string
	notices    io.Writer
}

// NewAccess adds the flags. The version is the plugin's; warnings of the API server and the progress of a wait go to notices.
func NewAccess(flags *pflag.FlagSet, version string, notices io.Writer) *Access {
	a := &Access{kubeconfig: kubeconfigFlags(flags), version: version, notices: notices}
	flags.StringVar(&a.SystemNamespace, "system-namespace", "merchant-operator-system", "namespace of the operator, the API and the dispatcher")
	flags.StringVar(&a.CredentialsNamespace, "credentials-namespace", "merchant-operator-credentials", "namespace of the published objects")
	return a
}

// kubeconfigFlags adds the flags of kubectl that say which cluster, and who. Flags with secrets are not among them. They are the flags
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

// Cluster is the Kubernetes API, with the rights of the person.
type Cluster struct {
	client.Client

	// Config is for what needs a connection of its own.
	Config *rest.Config
	// Namespace is the namespace of -n, or else of the context.
	Namespace string

	notices io.Writer
}

// Connect reads the kubeconfig; the first request connects.
func (a *Access) Connect() (*Cluster, error) {
	namespace, _, err := a.kubeconfig.Namespace()
	if err != nil {
		return nil, kubeconfigError(err)
	}
	for _, given := range []struct{ flag, name string }{
		{"--namespace", namespace}, {"--system-namespace", a.SystemNamespace}, {"--credentials-namespace", a.CredentialsNamespace},
	} {
		if len(validation.IsDNS1123Label(given.name)) > 0 {
			return nil, terminal.Usage("A namespace has lower-case letters, digits and -.", "%s must be the name of a namespace, not %q", given.flag, given.name)
		}
	}
	config, err := a.kubeconfig.ClientConfig()
	if err != nil {
		return nil, kubeconfigError(err)
	}
	config.QPS = -1 // a person is no crowd
	config.UserAgent = FieldOwner + "/" + a.version
	config.WarningHandler = rest.NewWarningWriter(a.notices, rest.WarningWriterOptions{Deduplicate: true})
	kubeclient.BoundNesting(config)
	logf.SetLogger(logr.Discard()) // or controller-runtime complains on stderr after 30 seconds
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	kube, err := client.New(config, client.Options{Scheme: scheme, Mapper: kubeclient.NewMapper(), FieldOwner: FieldOwner})
	if err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	return &Cluster{kube, config, namespace, a.notices}, nil
}

func kubeconfigError(err error) error {
	if clientcmd.IsEmptyConfig(err) {
		return terminal.Usage("Set --kubeconfig or KUBECONFIG.", "there is no kubeconfig")
	}
	return terminal.Usage("Check --kubeconfig, --context, --cluster, --user and --request-timeout; kubectl config get-contexts lists the contexts.", "%w", err)
}
