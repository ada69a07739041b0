package merchants

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
)

// facts are all that a decision about a Merchant needs.
type facts struct {
	now       time.Time
	merchant  *v1alpha1.Merchant
	namespace string            // of published objects
	published *corev1.ConfigMap // nil: none

	// newer says that a newer operator wrote the ConfigMap, newerSigning that it wrote the signing secret.
	newer, newerSigning bool

	// signing is the Secret webhook-<id>; nil: none.
	signing *corev1.Secret
	// record is what it holds; nil: nothing that can be used.
	record *published.WebhookRecord
	// target is the Secret of the name that the spec gives the merchant's copy, if it is this
	// Merchant's; nil: it is not, or there is none.
	target *corev1.Secret
	// targetTaken says that somebody else's Secret has that name, targetHolder whose it is.
	targetTaken  bool
	targetHolder string
	// delivered are the Secrets that the cache knows to be this Merchant's.
	delivered []metav1.ObjectMeta
}

// untouched reports whether there is no trace of an earlier pass over the Merchant.
func (f facts) untouched() bool {
	return f.merchant.Status.MerchantID == "" && f.published == nil && f.signing == nil && f.target == nil && len(f.delivered) == 0
}

// targetName is the name of the Secret that the signing secret is delivered in; empty: there is no
// webhook.
func (f facts) targetName() string {
	switch webhook := f.merchant.Spec.Webhook; {
	case webhook == nil:
		return ""
	case webhook.SecretName != "":
		return webhook.SecretName
	default:
		return f.merchant.Name + "-webhook"
	}
}

// secretNames are the names under which a Secret of the Merchant's may be.
func (f facts) secretNames() []string {
	var names []string
	if f.targetName() != "" {
		names = append(names, f.targetName())
	}
	for _, secret := range f.delivered {
		if secret.Name != f.targetName() {
			names = append(names, secret.Name)
		}
	}
	return names
}

// gather does all reading. The facts name the Merchant also when there is an error. The merchant's
// copy of the signing secret is always read from the API server: a cache of Secrets with their data would hold other
// plaintexts of the tenant as well.
func (r *Reconciler) gather(ctx context.Context, from client.Reader, merchant *v1alpha1.Merchant) (facts, error) {
	f := facts{now: r.Clock.Now().UTC(), merchant: merchant, namespace: r.CredentialsNamespace}
	id := published.ID(merchant.UID)
	var err error
	if f.published, err = read(ctx, from, f.namespace, published.MerchantName(id), new(corev1.ConfigMap)); err != nil {
		return f, err
	}
	if f.published != nil {
		_, err := published.DecodeMerchant(f.published)
		f.newer = errors.Is(err, published.ErrNewerVersion)
	}
	if f.signing, err = read(ctx, from, f.namespace, published.WebhookName(id), new(corev1.Secret)); err != nil {
		return f, err
	}
	if f.signing != nil {
		record, err := published.DecodeWebhook(f.signing)
		f.newerSigning = errors.Is(err, published.ErrNewerVersion)
		if err == nil && record.Source.UID == merchant.UID {
			f.record = &record
		}
	}
	if f.delivered, err = r.Secrets.List(ctx, merchant); err != nil || f.targetName() == "" {
		return f, err
	}
	target, err := read(ctx, r.Live, merchant.Namespace, f.targetName(), new(corev1.Secret))
	switch {
	case err != nil || target == nil:
		return f, err
	case tenantsecret.OwnedBy(target, merchant.UID):
		f.target = target
	default:
		f.targetTaken, f.targetHolder = true, tenantsecret.HeldBy(target, merchant, "Merchant")
	}
	return f, nil
}

// read returns the object that it has read into; the zero T, nil: there is none.
func read[T client.Object](ctx context.Context, from client.Reader, namespace, name string, into T) (T, error) {
	var none T
	key := client.ObjectKey{Namespace: namespace, Name: name}
	switch err := from.Get(ctx, key, into); {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("read %T %s: %w", into, key, err)
	}
	return into, nil
}

// gatherLive reads the facts from the API server.
func (r *Reconciler) gatherLive(ctx context.Context, merchant *v1alpha1.Merchant) (facts, error) {
	f, err := r.gather(ctx, r.Live, merchant)
	if err != nil {
		return f, err
	}
	f.delivered, err = r.stillDelivered(ctx, merchant, f.delivered)
	return f, err
}

// stillDelivered returns those of the Secrets that are there and are still the Merchant's.
func (r *Reconciler) stillDelivered(ctx context.Context, merchant *v1alpha1.Merchant, seen []metav1.ObjectMeta) ([]metav1.ObjectMeta, error) {
	var there []metav1.ObjectMeta
	for _, secret := range seen {
		now, err := r.Secrets.Get(ctx, secret.Namespace, secret.Name)
		if err != nil {
			return nil, err
		}
		if now != nil && tenantsecret.OwnedBy(now, merchant.UID) {
			there = append(there, now.ObjectMeta)
		}
	}
	return there, nil
}
