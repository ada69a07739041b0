package console

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// fieldOwner owns what the console writes.
const fieldOwner = "merchant-operator-console"

// connect makes the client of the Kubernetes API, and a cache of Merchants for the list, which would be slow without.
func (c *console) connect(cluster *rest.Config) (cache.Cache, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	var err error
	if c.kube, err = client.New(cluster, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	merchants, err := cache.New(cluster, cache.Options{
		Scheme: scheme, NewInformer: kube.PagedInformers(strip), DefaultTransform: strip,
		DefaultNamespaces: kube.WatchedNamespaces(c.options.WatchNamespaces),
	})
	if err != nil {
		return nil, fmt.Errorf("create a cache of Merchants: %w", err)
	}
	c.merchants = merchants
	return merchants, nil
}

// strip removes what the list does not show, so that a tenant's metadata costs no memory.
func strip(cached any) (any, error) {
	if merchant, ok := cached.(*v1alpha1.Merchant); ok {
		slim := &v1alpha1.Merchant{Spec: v1alpha1.MerchantSpec{DisplayName: merchant.Spec.DisplayName, State: merchant.Spec.State}}
		slim.Namespace, slim.Name, slim.UID, slim.ResourceVersion = merchant.Namespace, merchant.Name, merchant.UID, merchant.ResourceVersion
		return slim, nil
	}
	return cached, nil
}

// awaitCache returns when all Merchants are in the cache, or ctx has ended.
func awaitCache(ctx context.Context, merchants cache.Cache) error {
	if _, err := merchants.GetInformer(ctx, &v1alpha1.Merchant{}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch Merchants: %w", err)
	}
	return nil
}

// errNotFound is the answer to what does not exist and to what the person may not see.
var errNotFound = errors.New("not found")

// errKubernetes means that the Kubernetes API did not answer.
var errKubernetes = errors.New("the Kubernetes API is unavailable")

// kubernetesError is errNotFound, or errKubernetes with the reason.
func kubernetesError(what string, err error) error {
	if apierrors.IsNotFound(err) {
		return errNotFound
	}
	return fmt.Errorf("%w: %s: %w", errKubernetes, what, err)
}

// get reads an object that a request names. What cannot be a name is errNotFound, and no part of a path of the Kubernetes API.
func (c *console) get(ctx context.Context, key client.ObjectKey, into client.Object) error {
	if len(content.IsPathSegmentName(key.Namespace))+len(content.IsPathSegmentName(key.Name)) > 0 {
		return errNotFound
	}
	const longest = 4 * time.Second // client-go would try for ten
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if err := c.kube.Get(ctx, key, into); err != nil {
		return kubernetesError("read "+key.String(), err)
	}
	return nil
}

// invalidValue is the API server's message about a value, which it quotes.
var invalidValue = regexp.MustCompile(`^Invalid value: ("(?:[^"\\]|\\.)*"): (.*)$`)

// invalidReason returns what the API server says of an invalid object: a line for each value or field.
func invalidReason(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return "The Kubernetes API refuses this."
	}
	var reasons []string
	for _, cause := range status.Status().Details.Causes {
		reason := cause.Field + ": " + cause.Message
		if quoted := invalidValue.FindStringSubmatch(cause.Message); quoted != nil {
			reason = quoted[1] + " " + quoted[2]
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return strings.Join(reasons, "\n")
}
