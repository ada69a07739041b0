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
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// facts is everything that a decision about a Merchant needs.
type facts struct {
	now time.Time
	// clockWrong: nothing is ended because of the time.
	clockWrong bool

	merchant  *v1alpha1.Merchant
	namespace string             // of published objects
	maximum   v1alpha1.RateLimit // that the platform allows; 0: any
	configMap *corev1.ConfigMap  // nil: none

	// publishedWebhook is that of the ConfigMap; nil: none, or it cannot be read.
	publishedWebhook *published.Webhook
	// revocation is that of the ConfigMap, if this version must not take it back.
	revocation published.Revocation

	// newer is true if a newer operator wrote the ConfigMap, newerSigning if it wrote the signing secret.
	newer, newerSigning bool

	// ending is the published object that is being deleted and held by finalizers; nil: none. Nothing can be written in its place.
	ending client.Object

	// fullUntil is until when no new Merchant is published in the namespace; zero: it is not full, or the Merchant is not new.
	fullUntil time.Time

	// signing is the Secret webhook-<id>; nil: none.
	signing *corev1.Secret
	// unread is why the signing secret is not known; nil: it is.
	unread error
	// record is the content of signing; nil: none that is usable.
	record *published.WebhookRecord
	// target is the Secret of the merchant's copy; nil: it does not exist, or belongs to another owner.
	target *corev1.Secret
	// targetTaken is true if another owner's Secret has that name; targetHolder is the owner.
	targetTaken  bool
	targetHolder string
	// targetEnding is since when a Secret of that name is being deleted; zero: none is.
	targetEnding time.Time
	// delivered are the Secrets of this Merchant, from the cache.
	delivered []metav1.ObjectMeta
}

// rateLimit is that of the Merchant, but no more than the platform allows.
func (f facts) rateLimit() v1alpha1.RateLimit {
	atMost := func(asked, maximum int32) int32 {
		if maximum == 0 {
			return asked
		}
		return min(asked, maximum)
	}
	asked := f.merchant.Spec.RateLimit
	return v1alpha1.RateLimit{
		RequestsPerSecond: atMost(asked.RequestsPerSecond, f.maximum.RequestsPerSecond),
		Burst:             atMost(asked.Burst, f.maximum.Burst),
	}
}

// untouched reports whether nothing of the Merchant exists, so that all writes are creations. The status, which its tenant may write, does
// not count.
func (f facts) untouched() bool {
	return f.configMap == nil && f.signing == nil && f.target == nil && len(f.delivered) == 0
}

// targetName is the name of the Secret to deliver to; empty: no webhook.
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

// secretNames are the possible names of Secrets of the Merchant.
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

// newFacts returns what this process knows of the Merchant.
func (r *Reconciler) newFacts(merchant *v1alpha1.Merchant) facts {
	return facts{merchant: merchant, namespace: r.CredentialsNamespace, maximum: r.MaxRateLimit}
}

// ReadPublished reads the published objects, and then the Merchant. A restriction needs the ConfigMap only, so it does not wait for a
// signing secret that cannot be read. The facts name the Merchant even if there is an error.
func (r *Reconciler) ReadPublished(ctx context.Context, from reconciler.Source, merchant *v1alpha1.Merchant) (f facts, err error) { //nolint:revive // its facts are for reconciler.Driver only
	defer func() { f.now, f.clockWrong = r.Time() }()
	f = r.newFacts(merchant)
	if err := r.readConfigMap(ctx, from, &f); err != nil {
		return f, err
	}
	f.unread = r.readSigning(ctx, from, &f)
	current, err := reconciler.Current(ctx, from, merchant)
	if err != nil {
		return f, err
	}
	f.merchant = current
	return f, nil
}

// gather completes the published facts from the source that they are from. The merchant's copy of the signing secret is read from the API
// server: a cache with the data of Secrets would hold other secrets of the tenant too.
func (r *Reconciler) gather(ctx context.Context, from reconciler.Source, known facts) (f facts, err error) {
	f = known
	defer func() { f.now, f.clockWrong = r.Time() }()
	if f.unread != nil {
		return f, f.unread
	}
	if f.delivered, err = r.Secrets.List(ctx, f.merchant); err != nil {
		return f, err
	}
	if err := r.readTarget(ctx, &f); err != nil {
		return f, err
	}
	if !from.IsCached() {
		if f.delivered, err = r.stillDelivered(ctx, f); err != nil {
			return f, err
		}
	}
	if f.configMap == nil && f.signing == nil { // its tenant may plant delivered Secrets
		f.fullUntil, err = r.FullUntil(ctx, published.TombstoneMerchant, f.merchant, f.merchant.Status.Conditions, f.now)
	}
	return f, err
}

// readConfigMap reads the published ConfigMap.
func (r *Reconciler) readConfigMap(ctx context.Context, from client.Reader, f *facts) (err error) {
	f.configMap, err = read(ctx, from, f.namespace, published.MerchantName(published.ID(f.merchant.UID)), new(corev1.ConfigMap))
	if err != nil || f.configMap == nil {
		return err
	}
	if writes.Ending(f.configMap) {
		f.ending = f.configMap
	}
	record, err := published.DecodeMerchant(f.configMap)
	f.newer, f.publishedWebhook, f.revocation = errors.Is(err, published.ErrNewerVersion), record.Webhook, record.Final()
	return nil
}

// readSigning reads the published signing secret.
func (r *Reconciler) readSigning(ctx context.Context, from client.Reader, f *facts) (err error) {
	f.signing, err = read(ctx, from, f.namespace, published.WebhookName(published.ID(f.merchant.UID)), new(corev1.Secret))
	if err != nil || f.signing == nil {
		return err
	}
	if writes.Ending(f.signing) {
		f.ending = f.signing
	}
	record, err := published.DecodeWebhook(f.signing)
	f.newerSigning = errors.Is(err, published.ErrNewerVersion)
	if err == nil && record.Source.UID == f.merchant.UID {
		f.record = &record
	}
	return nil
}

// readTarget reads the Secret of the merchant's copy.
func (r *Reconciler) readTarget(ctx context.Context, f *facts) error {
	if f.targetName() == "" {
		return nil
	}
	target, err := read(ctx, r.APIReader, f.merchant.Namespace, f.targetName(), new(corev1.Secret))
	switch {
	case err != nil || target == nil:
		return err
	case target.DeletionTimestamp != nil: // what is written into it goes with it
		f.targetEnding = target.DeletionTimestamp.Time
	case tenantsecret.OwnedBy(target, f.merchant.UID):
		f.target = target
	default:
		f.targetTaken, f.targetHolder = true, tenantsecret.HeldBy(target, f.merchant, "Merchant")
	}
	return nil
}

// read returns the object that it has read; the zero T (nil): it does not exist.
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

// stillDelivered returns those of the first Secrets that still exist and belong to the Merchant. The next reconciliation, which the watch of
// a deleted one starts, reads others.
func (r *Reconciler) stillDelivered(ctx context.Context, f facts) ([]metav1.ObjectMeta, error) {
	var there []metav1.ObjectMeta
	for _, secret := range f.delivered[:min(len(f.delivered), tenantsecret.MaxAtOnce)] {
		now, err := r.Secrets.Get(ctx, secret.Namespace, secret.Name)
		if err != nil {
			return nil, err
		}
		if now != nil && tenantsecret.OwnedBy(now, f.merchant.UID) {
			there = append(there, now.ObjectMeta)
		}
	}
	return there, nil
}
