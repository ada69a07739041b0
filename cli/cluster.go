package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	kubeclient "github.com/merchant-operator/merchant-operator/internal/kube"
)

// fieldOwner owns what these commands write, but for the state of a key.
const fieldOwner = "kubectl-merchant"

// stateOwner owns the state of a key. Flux undoes each change of a manager whose name begins with "kubectl": a leaked key that was
// disabled in an incident would work again after the next sync.
const stateOwner = "merchant-operator-kubectl"

// cluster is the Kubernetes API, with the rights of the person.
type cluster struct {
	client.Client

	config *rest.Config
	// namespace is that of -n, or of the context.
	namespace string
}

// connect reads the kubeconfig; the first request connects.
func (p *plugin) connect() (*cluster, error) {
	namespace, _, err := p.config.Namespace()
	if err != nil {
		return nil, kubeconfigError(err)
	}
	for _, given := range []struct{ flag, name string }{
		{"--namespace", namespace}, {"--system-namespace", p.systemNamespace}, {"--credentials-namespace", p.credentialsNamespace},
	} {
		if len(validation.IsDNS1123Label(given.name)) > 0 {
			return nil, terminal.Usage("A namespace has lower-case letters, digits and -.", "%s must be the name of a namespace, not %q", given.flag, given.name)
		}
	}
	config, err := p.config.ClientConfig()
	if err != nil {
		return nil, kubeconfigError(err)
	}
	config.QPS = -1 // a person is no crowd
	config.UserAgent = fieldOwner + "/" + p.version
	config.WarningHandler = rest.NewWarningWriter(p.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	kubeclient.BoundNesting(config)
	logf.SetLogger(logr.Discard()) // or controller-runtime complains on stderr after 30 seconds
	scheme, mapper, err := kinds()
	if err != nil {
		return nil, err
	}
	kube, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper, FieldOwner: fieldOwner})
	if err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	return &cluster{kube, config, namespace}, nil
}

func kubeconfigError(err error) error {
	if clientcmd.IsEmptyConfig(err) {
		return terminal.Usage("Set --kubeconfig or KUBECONFIG.", "there is no kubeconfig")
	}
	return terminal.Usage("Check --kubeconfig, --context, --cluster, --user and --request-timeout; kubectl config get-contexts lists the contexts.", "%w", err)
}

// kinds are those that the commands use. A static mapper asks the API server nothing.
func kinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind, plural := range map[schema.GroupVersionKind]string{
		v1alpha1.SchemeGroupVersion.WithKind("Merchant"): "merchants",
		v1alpha1.SchemeGroupVersion.WithKind("ApiKey"):   "apikeys",
		corev1.SchemeGroupVersion.WithKind("Secret"):     "secrets",
		corev1.SchemeGroupVersion.WithKind("ConfigMap"):  "configmaps",
		corev1.SchemeGroupVersion.WithKind("Pod"):        "pods",
		appsv1.SchemeGroupVersion.WithKind("Deployment"): "deployments",
		eventsv1.SchemeGroupVersion.WithKind("Event"):    "events",
	} {
		group := kind.GroupVersion()
		mapper.AddSpecific(kind, group.WithResource(plural), group.WithResource(strings.ToLower(kind.Kind)), meta.RESTScopeNamespace)
	}
	return scheme, mapper, nil
}

// in selects the objects of the namespace, or of all namespaces.
func (c *cluster) in(allNamespaces bool) client.InNamespace {
	if allNamespaces {
		return ""
	}
	return client.InNamespace(c.namespace)
}

// merchant reads a Merchant.
func (c *cluster) merchant(ctx context.Context, name string) (*v1alpha1.Merchant, error) {
	var merchant v1alpha1.Merchant
	return &merchant, c.read(ctx, "Merchant", name, &merchant)
}

// apiKey reads an ApiKey.
func (c *cluster) apiKey(ctx context.Context, name string) (*v1alpha1.ApiKey, error) {
	var key v1alpha1.ApiKey
	return &key, c.read(ctx, "ApiKey", name, &key)
}

func (c *cluster) read(ctx context.Context, kind, name string, into client.Object) error {
	if err := checkName(kind, name); err != nil {
		return err
	}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, into)
	if apierrors.IsNotFound(err) && !notInstalled(err) {
		hint := "List them with: kubectl merchant status -n " + c.namespace + "; -A lists all namespaces."
		if near := c.suggest(ctx, kind, name); near != "" {
			hint = "Do you mean " + near + "? " + hint
		}
		return terminal.Hinted(hint, "there is no %s %s in namespace %s", kind, name, c.namespace)
	}
	if err != nil {
		return fmt.Errorf("read %s %s/%s: %w", kind, c.namespace, name, err)
	}
	return nil
}

// notInstalled reports whether the API server does not know the kind.
func notInstalled(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err)
}

// checkName refuses what cannot be the name of an object.
func checkName(kind, name string) error {
	const longest = 63
	if len(validation.IsDNS1123Subdomain(name)) > 0 || len(name) > longest {
		return terminal.Usage("A name has lower-case letters, digits, - and ., at most 63.", "%q is not the name of %s", name, article(kind))
	}
	return nil
}

// article puts a or an before a kind.
func article(kind string) string {
	if strings.ContainsAny(kind[:1], "AEIOU") {
		return "an " + kind
	}
	return "a " + kind
}

// awaitInterval is how often an object is read that is waited for.
const awaitInterval = 250 * time.Millisecond

// progress is how far the operator is with an object.
type progress struct {
	done bool
	// state is what is missing.
	state string
	// stalled: only a person can change that, so waiting is pointless.
	stalled bool
}

// await reads an object until it is ready, and prints each change of what it waits for. A timeout is a negativeError, and so is an
// object that waits for a person; with 0 it does not wait.
func (p *plugin) await(ctx context.Context, kube *cluster, timeout time.Duration, object client.Object, look func() progress) error {
	if timeout == 0 {
		return nil
	}
	reported := ""
	stalled := false
	err := wait.PollUntilContextTimeout(ctx, awaitInterval, timeout, true, func(ctx context.Context) (bool, error) {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return false, err
		}
		seen := look()
		stalled = seen.stalled && !seen.done
		if !seen.done && !stalled && seen.state != reported {
			fmt.Fprintf(p.ErrOut, "waiting for %s: %s\n", object.GetName(), terminal.Inline(seen.state))
		}
		reported = seen.state
		return seen.done || stalled, nil
	})
	if stalled && err == nil {
		return &terminal.NegativeError{Message: fmt.Sprintf("%s is not ready: %s", object.GetName(), reported)}
	}
	if wait.Interrupted(err) && ctx.Err() == nil {
		return &terminal.NegativeError{Message: fmt.Sprintf("%s is not ready after %s: %s", object.GetName(), timeout, reported)}
	}
	return err
}
