package explain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/directory"
)

// publishedObjects are read into a directory, the same index that a replica of the API has. It reads no more than the
// presented string needs, because a cluster may have 100,000 keys.
type publishedObjects struct {
	*directory.Directory

	kube      client.Client
	namespace string
	// records has the key records that were read, by key id; of a record of a newer version, the envelope. unreadable has the errors of the
	// records that could not be read.
	records    map[string]published.KeyRecord
	unreadable map[string]error
	// deleted are the tombstones that were read, by key id. merchantDeleted: there is one of the key's Merchant.
	deleted         map[string]published.Tombstone
	merchantDeleted bool
	// claim is the one to the digest of the presented string; nil: none, or not read.
	claim *published.DigestClaim
}

func newPublishedObjects(kube client.Client, namespace string, now func() time.Time) *publishedObjects {
	return &publishedObjects{
		Directory: directory.New(directory.Options{
			Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(), KeyHandler: noHandler{}, Now: now,
		}),
		kube: kube, namespace: namespace,
		records: map[string]published.KeyRecord{}, unreadable: map[string]error{}, deleted: map[string]published.Tombstone{},
	}
}

// pageSize is how many Secrets are listed at a time.
const pageSize = 500

// readFor reads what decides about a presented string. A generated key has a key id, so its record is read by name; of other strings
// only the digest is known, so all records are read.
func (o *publishedObjects) readFor(ctx context.Context, presented string) error {
	if id, ok := apikey.ParseID(presented); ok {
		if err := o.readKey(ctx, id); err != nil {
			return err
		}
		_, deleted := o.deleted[id]
		if _, known := o.records[id]; known || deleted {
			return nil
		}
	}
	for more := ""; ; {
		var page corev1.SecretList
		if err := o.kube.List(ctx, &page, client.InNamespace(o.namespace), client.MatchingLabels{published.Label: published.LabelKey}, client.Limit(pageSize), client.Continue(more)); err != nil {
			return fmt.Errorf("list the published keys: %w", err)
		}
		for i := range page.Items {
			o.addKey(&page.Items[i])
		}
		if more = page.Continue; more == "" {
			return nil
		}
	}
}

// readKey reads the record and the tombstone of a key id.
func (o *publishedObjects) readKey(ctx context.Context, id string) error {
	var secret corev1.Secret
	found, err := o.get(ctx, published.KeyName(id), published.LabelKey, &secret)
	if err != nil {
		return err
	}
	if found {
		o.addKey(&secret)
	}
	return o.readTombstone(ctx, id)
}

func (o *publishedObjects) readTombstone(ctx context.Context, id string) error {
	var configMap corev1.ConfigMap
	found, err := o.get(ctx, published.KeyTombstoneName(id), published.LabelTombstone, &configMap)
	if err != nil || !found {
		return err
	}
	if tombstone, err := published.DecodeTombstone(&configMap); err == nil {
		o.deleted[id] = tombstone
	}
	return o.Informer("tombstone").Add(&configMap)
}

// readMerchant reads the merchant of a key id, and whether the merchant or the key was deleted.
func (o *publishedObjects) readMerchant(ctx context.Context, keyID string) error {
	id := o.records[keyID].MerchantID
	var tombstone, configMap corev1.ConfigMap
	var err error
	if o.merchantDeleted, err = o.get(ctx, published.MerchantTombstoneName(id), published.LabelTombstone, &tombstone); err != nil {
		return err
	}
	found, err := o.get(ctx, published.MerchantName(id), published.LabelMerchant, &configMap)
	if err != nil {
		return err
	}
	if found {
		if err := o.Informer("merchant").Add(&configMap); err != nil {
			return err
		}
	}
	return o.readTombstone(ctx, keyID)
}

func (o *publishedObjects) addKey(secret *corev1.Secret) {
	id := published.KeyID(secret.Name)
	record, err := published.DecodeKey(secret)
	if errors.Is(err, published.ErrNewerVersion) {
		record, err = published.DecodeKeyEnvelope(secret)
	}
	if err != nil {
		o.unreadable[id] = err
	} else {
		o.records[id] = record
	}
	_ = o.Informer("key").Add(secret) // it never fails, and skips what it cannot read
}

// readClaim reads who may use a digest.
func (o *publishedObjects) readClaim(ctx context.Context, digest apikey.Digest) error {
	var secret corev1.Secret
	found, err := o.get(ctx, published.DigestClaimName(digest), published.LabelDigest, &secret)
	if err != nil || !found {
		return err
	}
	if claim, err := published.DecodeDigestClaim(&secret); err == nil {
		o.claim = &claim
	}
	return nil
}

// get reads an object. One without the label is not published: the API does not see it either.
func (o *publishedObjects) get(ctx context.Context, name, label string, into client.Object) (found bool, err error) {
	err = o.kube.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the published objects in namespace %s: %w", o.namespace, err)
	}
	return into.GetLabels()[published.Label] == label, nil
}

// noHandler ignores changes: a directory that is read once never changes.
type noHandler struct{}

// KeyUpdated has nothing to write.
func (noHandler) KeyUpdated(_ published.KeyRecord, written func()) { written() }

// KeyRevoked does nothing.
func (noHandler) KeyRevoked(published.KeyRecord) {}

// KeyEnded does nothing.
func (noHandler) KeyEnded(published.KeyRecord, time.Time) {}

// KeyUnverified does nothing.
func (noHandler) KeyUnverified(published.KeyRecord) {}
