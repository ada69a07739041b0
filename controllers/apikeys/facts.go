package apikeys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/lastuse"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// facts is everything that a decision about an ApiKey needs.
type facts struct {
	now time.Time
	// clockWrong: nothing is rotated, ended or deleted because of the time.
	clockWrong bool
	apiKey     *v1alpha1.ApiKey
	// younger: the ApiKey was created after this operator began to look at ApiKeys.
	younger bool
	// warned are the warnings that stand.
	warned reconciler.Warned
	// incomplete is true if reading failed. Then nothing is concluded from missing facts.
	incomplete bool
	// merchantID is the id of the Merchant; empty: it does not exist, or is being deleted.
	merchantID string
	// merchantState is the state that is published of the Merchant, by which replicas of the API judge. It may differ from the spec, if
	// that could not be published. Empty: nothing is published that opens anything.
	merchantState v1alpha1.MerchantState
	// merchants are the names of all Merchants of the namespace, if the one in the spec does not exist.
	merchants []string
	// digest is spec.keyDigest; nil: the key is not externally generated.
	digest *apikey.Digest
	// secret is the published Secret of the key id; nil: none.
	secret *corev1.Secret
	// ending is since when the published Secret is being deleted; zero: it is not. It opens nothing, and no other can take its name.
	ending time.Time
	// record is the content of the published Secret; nil: none that is usable.
	record *published.KeyRecord
	// newer is true if a newer operator wrote the published Secret. This version cannot read it.
	newer bool
	// seen is the newest version of the record that this operator knows; zero: none.
	seen knownVersion
	// fullUntil is until when no new ApiKey is published in the namespace; zero: it is not full, or the ApiKey is not new.
	fullUntil time.Time
	// claims are those to the digests of externally generated keys, spec.keyDigest first.
	claims []claimState
	// delivered are the Secrets of this ApiKey.
	delivered []delivered
	// unpublished is the key that this operator has delivered and not published; the zero value: none.
	unpublished unpublishedKey
	// uses is what is known of the uses of the keys, by times.
	uses  lastuse.Evidence
	times OldKeyTimes
	// targetTaken is true if another owner's Secret has the name to deliver to; targetHolder is the owner. Only the API
	// server knows, because the cache has no such Secrets.
	targetTaken  bool
	targetHolder string
	// targetEnding is since when a Secret of the name to deliver to is being deleted; zero: none is.
	targetEnding time.Time
}

// ownRecord returns the record if it is this ApiKey's and up to date.
func (f facts) ownRecord() (published.KeyRecord, bool) {
	if f.record == nil || f.recordOfAnother() || f.outdated() {
		return published.KeyRecord{}, false
	}
	return *f.record, true
}

// outdated reports whether somebody restored an older record: the API says so, or this operator has seen a newer one. It counts as
// lost, because its key may have been revoked. The status of the ApiKey, which its tenant may write, decides nothing.
func (f facts) outdated() bool {
	if f.record == nil || f.recordOfAnother() {
		return false
	}
	return f.record.Superseded || f.record.Order().Compare(f.seen.order) < 0
}

func (f facts) recordOfAnother() bool { return f.record != nil && f.record.Source.UID != f.apiKey.UID }

// untouched reports whether nothing of the ApiKey exists, so that all writes for its first key are creations. The status, which its tenant
// may write, does not count.
func (f facts) untouched() bool { return f.secret == nil && len(f.delivered) == 0 }

// target is the name of the Secret to deliver to; empty: no delivery, so the operator cannot generate keys.
func (f facts) target() string {
	switch delivery := f.apiKey.Spec.Delivery; {
	case f.digest != nil || delivery != nil && delivery.Policy == v1alpha1.DeliveryNone:
		return ""
	case delivery != nil && delivery.SecretName != "":
		return delivery.SecretName
	default:
		return f.apiKey.Name + "-key"
	}
}

// secretNames are the possible names of Secrets of the ApiKey: the one in the spec, and those found.
func (f facts) secretNames(cached []delivered) []string {
	var names []string
	if f.target() != "" {
		names = append(names, f.target())
	}
	for _, d := range cached {
		if d.Name != f.target() {
			names = append(names, d.Name)
		}
	}
	return names
}

// deliveredAs returns this ApiKey's Secret of that name; nil: none.
func (f facts) deliveredAs(name string) *delivered {
	for i := range f.delivered {
		if f.delivered[i].Name == name {
			return &f.delivered[i]
		}
	}
	return nil
}

// gather completes the published facts from the source that they are from.
func (r *Reconciler) gather(ctx context.Context, from reconciler.Source, known facts) (f facts, err error) {
	f = known
	defer func() { f.now, f.clockWrong = r.Time() }()
	if err := r.readSpecified(ctx, from, &f); err != nil {
		return f, err
	}
	if err := r.readDelivered(ctx, from, &f); err != nil {
		return f, err
	}
	err = r.readFull(ctx, &f)
	return f, err
}

// readFull reads until when no new ApiKey is published in the namespace. Delivered Secrets do not make it an old one: its tenant may plant
// them.
func (r *Reconciler) readFull(ctx context.Context, f *facts) (err error) {
	if f.secret == nil && f.seen == (knownVersion{}) {
		f.fullUntil, err = r.FullUntil(ctx, published.TombstoneApiKey, f.apiKey, f.apiKey.Status.Conditions, f.now)
	}
	return err
}

// ReadPublished reads the published record, the ApiKey, its Merchant, and the published state of that: what a restriction needs.
// The facts name the ApiKey even if there is an error.
func (r *Reconciler) ReadPublished(ctx context.Context, from reconciler.Source, apiKey *v1alpha1.ApiKey) (f facts, err error) { //nolint:revive // its facts are for reconciler.Driver only
	defer func() { f.now, f.clockWrong = r.Time() }()
	f = r.newFacts(apiKey)
	if err := r.readRecord(ctx, from, &f); err != nil {
		return f, err
	}
	current, err := reconciler.Current(ctx, from, apiKey)
	if err != nil {
		return f, err
	}
	f.apiKey = current
	err = r.readMerchant(ctx, from, &f)
	return f, err
}

// newFacts returns what this process knows of the ApiKey.
func (r *Reconciler) newFacts(apiKey *v1alpha1.ApiKey) facts {
	return facts{
		apiKey: apiKey, seen: r.versions.newest(published.ID(apiKey.UID)), times: r.OldKeys,
		younger: r.Younger(apiKey), warned: r.Warned(apiKey, apiKey.Status.Conditions), unpublished: r.unpublishedKeyFor(apiKey),
	}
}

func (r *Reconciler) readRecord(ctx context.Context, from client.Reader, f *facts) error {
	name := client.ObjectKey{Namespace: r.CredentialsNamespace, Name: published.KeyName(published.ID(f.apiKey.UID))}
	secret := new(corev1.Secret)
	switch err := from.Get(ctx, name, secret); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read Secret %s: %w", name, err)
	}
	f.secret = secret
	record, err := published.DecodeKey(secret)
	f.newer = errors.Is(err, published.ErrNewerVersion)
	if err == nil {
		f.record = &record
		if !f.recordOfAnother() {
			r.versions.exists(record.KeyID, newVersion(record))
		}
	}
	if writes.Ending(secret) {
		f.ending, f.record, f.newer = secret.DeletionTimestamp.Time, nil, false
	}
	return nil
}

func (r *Reconciler) readMerchant(ctx context.Context, from client.Reader, f *facts) error {
	var merchant v1alpha1.Merchant
	name := client.ObjectKey{Namespace: f.apiKey.Namespace, Name: f.apiKey.Spec.MerchantRef.Name}
	switch err := from.Get(ctx, name, &merchant); {
	case err == nil && merchant.DeletionTimestamp.IsZero():
		f.merchantID = published.ID(merchant.UID)
		f.merchantState, err = r.publishedState(ctx, f.merchantID)
		return err
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("read Merchant %s: %w", name, err)
	}
	return nil
}

// readSpecified reads what a whole reconciliation needs besides, but for the delivered Secrets.
func (r *Reconciler) readSpecified(ctx context.Context, from client.Reader, f *facts) (err error) {
	if text := f.apiKey.Spec.KeyDigest; text != "" {
		digest, err := apikey.ParseDigest(text)
		if err != nil {
			return fmt.Errorf("spec.keyDigest: %w", err)
		}
		f.digest = &digest
	}
	if f.uses, err = r.LastUses.ApiKey(ctx, published.ID(f.apiKey.UID)); err != nil {
		return err
	}
	if f.merchantID == "" {
		if f.merchants, err = r.merchantNames(ctx, f.apiKey.Namespace); err != nil {
			return err
		}
	}
	return r.gatherClaims(ctx, from, f)
}

// publishedState returns the state that the cache has published of the Merchant. Each change of it starts a reconciliation.
func (r *Reconciler) publishedState(ctx context.Context, merchantID string) (v1alpha1.MerchantState, error) {
	var configMap corev1.ConfigMap
	name := client.ObjectKey{Namespace: r.CredentialsNamespace, Name: published.MerchantName(merchantID)}
	switch err := r.Client.Get(ctx, name, &configMap, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read ConfigMap %s: %w", name, err)
	}
	return publishedStateIn(&configMap), nil
}

// publishedStateIn returns the state by which replicas of the API judge the published merchant; empty: it opens nothing.
func publishedStateIn(configMap *corev1.ConfigMap) v1alpha1.MerchantState {
	record, err := published.DecodeMerchant(configMap)
	if errors.Is(err, published.ErrNewerVersion) {
		record, err = published.DecodeMerchantEnvelope(configMap)
	}
	if err != nil || writes.Ending(configMap) {
		return ""
	}
	return record.EffectiveState()
}

// merchantNames returns the sorted names of the Merchants of a namespace, from the cache.
func (r *Reconciler) merchantNames(ctx context.Context, namespace string) ([]string, error) {
	var merchants v1alpha1.MerchantList
	if err := r.Client.List(ctx, &merchants, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Merchants: %w", err)
	}
	var names []string
	for i := range merchants.Items {
		if merchants.Items[i].DeletionTimestamp.IsZero() {
			names = append(names, merchants.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// cachedDelivered returns this ApiKey's delivered Secrets of any name.
func (r *Reconciler) cachedDelivered(ctx context.Context, apiKey *v1alpha1.ApiKey) ([]delivered, error) {
	secrets, err := r.Secrets.List(ctx, apiKey)
	if err != nil {
		return nil, err
	}
	var found []delivered
	for _, secret := range secrets {
		found = append(found, delivered{secret})
	}
	return found, nil
}

// readDelivered reads the delivered Secrets. From the API server it checks who owns the name to deliver to, which no cache knows.
// Of too many delivered Secrets the next reconciliation, which the watch of a deleted one starts, reads others.
func (r *Reconciler) readDelivered(ctx context.Context, from reconciler.Source, f *facts) error {
	cached, err := r.cachedDelivered(ctx, f.apiKey)
	if err != nil {
		return err
	}
	if from.IsCached() {
		f.delivered = cached
		return nil
	}
	names := f.secretNames(cached)
	for _, name := range names[:min(len(names), tenantsecret.MaxAtOnce)] {
		secret, err := r.Secrets.Get(ctx, f.apiKey.Namespace, name)
		switch {
		case err != nil:
			return err
		case secret == nil:
		case secret.DeletionTimestamp != nil: // what is written into it goes with it
			if name == f.target() {
				f.targetEnding = secret.DeletionTimestamp.Time
			}
		case tenantsecret.OwnedBy(secret, f.apiKey.UID):
			f.delivered = append(f.delivered, delivered{secret.ObjectMeta})
		case name == f.target():
			f.targetTaken, f.targetHolder = true, tenantsecret.HeldBy(secret, f.apiKey, "ApiKey")
		}
	}
	return r.forgetReplaced(ctx, f)
}

// forgetReplaced forgets the key that this operator delivered and did not publish, if another operator has delivered the current one into
// that Secret since.
func (r *Reconciler) forgetReplaced(ctx context.Context, f *facts) error {
	record, known := f.ownRecord()
	if !known || !f.unpublished.insteadOf(record) || f.deliveredAs(f.target()) == nil {
		return nil
	}
	key, err := r.readKey(ctx, *f, f.target())
	if err == nil && key.Digest().Equal(record.Current.Digest) {
		r.unpublished.Remove(f.apiKey.UID)
		f.unpublished = unpublishedKey{}
	}
	return err
}
