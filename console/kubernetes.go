package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// fieldOwner owns what the console writes.
const fieldOwner = "merchant-operator-console"

// connect makes the client of the Kubernetes API, and a cache of the namespaces' Merchants and ApiKeys for the list, which would be slow without.
func connect(cluster *rest.Config, namespaces []string) (client.Client, cache.Cache, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)); err != nil {
		return nil, nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	direct, err := client.New(cluster, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	merchants, err := cache.New(cluster, cache.Options{
		Scheme: scheme, NewInformer: kube.PagedInformers(strip), DefaultTransform: strip,
		DefaultNamespaces: kube.WatchedNamespaces(namespaces),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("create a cache of Merchants: %w", err)
	}
	return direct, merchants, nil
}

// strip keeps what the list shows, so that a tenant's metadata, messages and lists cost no memory.
func strip(cached any) (any, error) {
	switch object := cached.(type) {
	case *v1alpha1.Merchant:
		slim := &v1alpha1.Merchant{Spec: v1alpha1.MerchantSpec{DisplayName: object.Spec.DisplayName, State: object.Spec.State, TimeZone: object.Spec.TimeZone}}
		slim.Namespace, slim.Name, slim.UID, slim.ResourceVersion = object.Namespace, object.Name, object.UID, object.ResourceVersion
		if object.Spec.Webhook != nil {
			slim.Spec.Webhook = &v1alpha1.Webhook{}
		}
		if last := lastBlocked(object); !last.IsZero() {
			slim.Status.Allowlist = &v1alpha1.AllowlistStatus{Refused: []v1alpha1.RefusedBlock{{LastSeen: last}}}
		}
		return slim, nil
	case *v1alpha1.ApiKey:
		return stripKey(object), nil
	}
	return cached, nil
}

// lastBlocked is the last request from a blocked address; zero: none.
func lastBlocked(merchant *v1alpha1.Merchant) (last metav1.Time) {
	if merchant.Status.Allowlist != nil {
		for _, block := range merchant.Status.Allowlist.Refused {
			if last.Before(&block.LastSeen) {
				last = block.LastSeen
			}
		}
	}
	return last
}

// stripKey keeps of an ApiKey what may need attention.
func stripKey(key *v1alpha1.ApiKey) *v1alpha1.ApiKey {
	slim := &v1alpha1.ApiKey{Spec: v1alpha1.ApiKeySpec{MerchantRef: key.Spec.MerchantRef}}
	slim.Namespace, slim.Name, slim.UID, slim.ResourceVersion = key.Namespace, key.Name, key.UID, key.ResourceVersion
	for _, trouble := range []string{v1alpha1.KeyLostCondition, v1alpha1.OldKeyInUseCondition, v1alpha1.ExpiringSoonCondition} {
		if meta.IsStatusConditionTrue(key.Status.Conditions, trouble) {
			slim.Status.Conditions = append(slim.Status.Conditions, metav1.Condition{Type: trouble, Status: metav1.ConditionTrue})
		}
	}
	if len(slim.Status.Conditions) > 0 {
		slim.Spec.ExpiresAt = key.Spec.ExpiresAt
		if old := key.Status.PreviousKeys; len(old) > 0 {
			slim.Status.PreviousKeys = []v1alpha1.PreviousKey{{ValidUntil: old[0].ValidUntil}}
		}
	}
	return slim
}

// merchantIndex is the index of the ApiKeys in the cache by the name of their Merchant.
const merchantIndex = "spec.merchantRef.name"

// awaitCache returns when all Merchants and ApiKeys are in the cache, or ctx has ended.
func awaitCache(ctx context.Context, merchants cache.Cache) error {
	err := merchants.IndexField(ctx, &v1alpha1.ApiKey{}, merchantIndex, func(object client.Object) []string {
		key, _ := object.(*v1alpha1.ApiKey)
		return []string{key.Spec.MerchantRef.Name}
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("index ApiKeys: %w", err)
	}
	for _, object := range []client.Object{&v1alpha1.Merchant{}, &v1alpha1.ApiKey{}} {
		if _, err := merchants.GetInformer(ctx, object); err != nil && ctx.Err() == nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

// errKubernetes means that the Kubernetes API did not answer.
var errKubernetes = errors.New("the Kubernetes API is unavailable")

// kubernetesError is web.ErrNotFound, or errKubernetes with the reason.
func kubernetesError(what string, err error) error {
	if apierrors.IsNotFound(err) {
		return web.ErrNotFound
	}
	return fmt.Errorf("%w: %s: %w", errKubernetes, what, err)
}

// mayBeDone reports whether a write may have been done although it failed with that error: the Kubernetes API did not refuse it.
func mayBeDone(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, errKubernetes) && (!errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError)
}

// kubernetesTimeout limits a read of one object, and a change after which there is more to do: client-go would try for ten seconds, or as long
// as the request may take. Any other change has the request's time.
const kubernetesTimeout = 4 * time.Second

// get reads an object that a request names. What cannot be a name is web.ErrNotFound, and no part of a path of the Kubernetes API.
func (c *console) get(ctx context.Context, key client.ObjectKey, into client.Object) error {
	if len(content.IsPathSegmentName(key.Namespace))+len(content.IsPathSegmentName(key.Name)) > 0 {
		return web.ErrNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	if err := c.kube.Get(ctx, key, into); err != nil {
		return kubernetesError("read "+key.String(), err)
	}
	return nil
}

// invalidValue is the API server's message about a value, which it quotes.
var invalidValue = regexp.MustCompile(`^Invalid value: ("(?:[^"\\]|\\.)*"): (.*)$`)

// invalidReason returns what the API server says of an invalid object: a line for each value or field.
func (c *console) invalidReason(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return c.pages.Words.Text("form.refused")
	}
	var reasons []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "<nil>" { // rules that were not checked yet: no field of a form
			continue
		}
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
