// Package objects reads and writes Merchants and ApiKeys at the Kubernetes API for the pages of the console. Lists come from a cache, which keeps
// no more of each object than they show; a page about one object reads it.
package objects

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

// FieldOwner owns what the console writes.
const FieldOwner = "merchant-operator-console"

// Client reads and writes objects at the Kubernetes API. It is safe for concurrent use.
type Client struct {
	client.Client

	// Cache has the Merchants and ApiKeys of the watched namespaces, as strip keeps them. It is to be started.
	Cache cache.Cache

	keyReads *web.Inflight // ApiKeys that are being read
}

// maxKeyReads bounds the ApiKeys that all pages read at once.
const maxKeyReads = 32

var errTooManyKeyReads = fmt.Errorf("%w: too many ApiKeys are being read", ErrUnavailable)

// Connect returns a Client of the Kubernetes API, with a cache of the namespaces' objects; without namespaces, of all.
func Connect(cluster *rest.Config, namespaces []string) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	mapper := kube.NewMapper()
	direct, err := client.New(cluster, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	cached, err := cache.New(cluster, cache.Options{
		Scheme: scheme, Mapper: mapper, NewInformer: kube.PagedInformers(strip), DefaultTransform: strip,
		DefaultNamespaces: kube.WatchedNamespaces(namespaces),
	})
	if err != nil {
		return nil, fmt.Errorf("create a cache of Merchants: %w", err)
	}
	return &Client{Client: direct, Cache: cached, keyReads: web.NewInflight(maxKeyReads, maxKeyReads, errTooManyKeyReads)}, nil
}

// ErrUnavailable means that the Kubernetes API did not answer.
var ErrUnavailable = errors.New("the Kubernetes API is unavailable")

// Error returns the error of a failed call of the Kubernetes API: web.ErrNotFound, a *DeniedError, or ErrUnavailable with the reason.
func Error(what string, err error) error {
	if rule := denied(err); rule != nil {
		return fmt.Errorf("%s: %w", what, rule)
	}
	if apierrors.IsNotFound(err) {
		return web.ErrNotFound
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
}

// MayBeDone reports whether a write may have been done although it failed with that error: the Kubernetes API did not refuse it.
func MayBeDone(err error) bool {
	var status apierrors.APIStatus
	return errors.Is(err, ErrUnavailable) && (!errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError)
}

// Timeout limits a read of one object, and a change after which there is more to do: client-go would try for ten seconds, or as long
// as the request may take. Any other change has the request's time.
const Timeout = 4 * time.Second

// Read reads an object that a request names. Errors: web.ErrNotFound, ErrUnavailable. What cannot be a name is web.ErrNotFound, and no part of a path of the Kubernetes API.
func (c *Client) Read(ctx context.Context, key client.ObjectKey, into client.Object) error {
	if len(content.IsPathSegmentName(key.Namespace))+len(content.IsPathSegmentName(key.Name)) > 0 {
		return web.ErrNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := c.Get(ctx, key, into); err != nil {
		return Error("read "+key.String(), err)
	}
	return nil
}

// ReadKey returns an ApiKey of the Merchant. Errors: web.ErrNotFound, ErrUnavailable.
func (c *Client) ReadKey(ctx context.Context, merchant *v1alpha1.Merchant, name string) (*v1alpha1.ApiKey, error) {
	end, err := c.keyReads.Await(ctx, merchant.Namespace, merchant.Namespace) // the bound of a person says nothing here
	if err != nil {
		return nil, err
	}
	defer end()
	var key v1alpha1.ApiKey
	if err := c.Read(ctx, client.ObjectKey{Namespace: merchant.Namespace, Name: name}, &key); err != nil {
		return nil, err
	}
	if key.Spec.MerchantRef.Name != merchant.Name {
		return nil, web.ErrNotFound
	}
	return &key, nil
}

// DeniedError means that a rule of the platform refuses a change: an admission policy or webhook. Reason is in its author's words.
type DeniedError struct{ Reason string }

// Error is for the log.
func (e *DeniedError) Error() string { return "an admission rule refuses it: " + e.Reason }

// denied returns the DeniedError of a failed call; nil: it is none.
func denied(err error) *DeniedError {
	reason, ok := kube.DeniedReason(err)
	if !ok {
		return nil
	}
	return &DeniedError{reason}
}

// RefusedReason returns what a person should read of a refused change: a rule of the platform, or a line for each invalid value or field.
// refused is false if the call failed for another reason.
func RefusedReason(words web.Words, err error) (reason string, refused bool) {
	if rule := denied(err); rule != nil {
		return words.Text("form.policy", rule.Reason), true
	}
	if apierrors.IsInvalid(err) {
		return invalidReason(words, err), true
	}
	return "", false
}

// invalidValue is the API server's message about a value, which it quotes.
var invalidValue = regexp.MustCompile(`^Invalid value: ("(?:[^"\\]|\\.)*"): (.*)$`)

// invalidReason returns what is wrong with an invalid object, a line for each value or field: in words, if it is a field of a form, else as the API
// server says it.
func invalidReason(words web.Words, err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return words.Text("form.refused")
	}
	var reasons []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "<nil>" { // rules that were not checked yet: no field of a form
			continue
		}
		reason, quoted := cause.Message, invalidValue.FindStringSubmatch(cause.Message)
		switch key := "invalid." + cause.Field; {
		case words.Known(key):
			reason = words.Text(key)
		case quoted != nil:
			reason = quoted[1] + " " + quoted[2]
		case cause.Field != "":
			reason = cause.Field + ": " + cause.Message
		}
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	return cmp.Or(strings.Join(reasons, "\n"), words.Text("form.refused"))
}
