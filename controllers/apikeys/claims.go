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
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// maxClaims is the maximum number of digests that one ApiKey can claim, because a claim stays when spec.keyDigest
// changes.
const maxClaims = 32

// claimState is what is known about the claim to one digest.
type claimState struct {
	digest apikey.Digest
	secret *corev1.Secret         // nil: there is none
	claim  *published.DigestClaim // nil: none that can be read
	newer  bool                   // a newer operator wrote it
	// used is true if the published record of another ApiKey has the digest. Then a claim that somebody removed
	// cannot be taken.
	used bool
	// former is true if the published record of a former ApiKey of this namespace and name has the digest.
	former bool
	// full is true if there is no claim and the ApiKey has the maximum number of claims.
	full bool
	// fullUntil is until when no new digest is claimed in the namespace; zero: there is room.
	fullUntil time.Time
}

// gatherClaims reads the claims to spec.keyDigest and to the last handled digest.
func (r *Reconciler) gatherClaims(ctx context.Context, from client.Reader, f *facts) error {
	digests := []*apikey.Digest{f.digest}
	if record, known := f.ownRecord(); known && !sameDigest(record.HandledDigest, f.digest) {
		digests = append(digests, record.HandledDigest)
	}
	for _, digest := range digests {
		if digest == nil {
			continue
		}
		state, err := r.readClaim(ctx, from, *f, *digest)
		if err != nil {
			return err
		}
		f.claims = append(f.claims, state)
	}
	return nil
}

func (r *Reconciler) readClaim(ctx context.Context, from client.Reader, f facts, digest apikey.Digest) (claimState, error) {
	state := claimState{digest: digest}
	key := client.ObjectKey{Namespace: r.CredentialsNamespace, Name: published.DigestClaimName(digest)}
	secret := new(corev1.Secret)
	switch err := from.Get(ctx, key, secret); {
	case err == nil:
		state.secret = secret
		claim, err := published.DecodeDigestClaim(secret)
		state.newer = errors.Is(err, published.ErrNewerVersion)
		if err == nil {
			state.claim = &claim
		}
		if err == nil && claim.Source.UID == f.apiKey.UID {
			return state, nil
		}
	case !apierrors.IsNotFound(err):
		return state, fmt.Errorf("read Secret %s: %w", key, err)
	}
	// Only the cache has these indexes. It may lack a write of the last seconds; a removed claim is older than that.
	var records, claims corev1.SecretList
	if err := r.Client.List(ctx, &records, client.MatchingFields{digestIndex: digest.Hex()}, client.UnsafeDisableDeepCopy); err != nil {
		return state, fmt.Errorf("find published keys of a digest: %w", err)
	}
	for i := range records.Items {
		record, err := published.DecodeKey(&records.Items[i])
		own := err == nil && sameSource(record.Source, f.apiKey)
		state.used = state.used || err == nil && !own
		state.former = state.former || own && record.Source.UID != f.apiKey.UID
	}
	own := client.MatchingFields{claimOwnerIndex: ownerName(f.apiKey.Namespace, f.apiKey.Name)}
	if err := r.Client.List(ctx, &claims, own, client.UnsafeDisableDeepCopy); err != nil {
		return state, fmt.Errorf("find the claims of an ApiKey: %w", err)
	}
	if state.secret != nil {
		return state, nil
	}
	state.full = len(claims.Items) >= maxClaims
	var err error
	if _, known := f.ownRecord(); known {
		state.fullUntil, err = r.Tombstones.Full(ctx, published.TombstoneApiKey, f.apiKey.Namespace, f.now)
	} else { // what was lost is published again
		state.fullUntil, err = r.FullUntil(ctx, published.TombstoneApiKey, f.apiKey, f.apiKey.Status.Conditions, f.now)
	}
	return state, err
}

// sameSource reports whether the claim belongs to the ApiKey of this namespace and name. A recreated ApiKey keeps its
// claims, because a namespace is one tenant.
func sameSource(source published.Source, apiKey *v1alpha1.ApiKey) bool {
	return source.Namespace == apiKey.Namespace && source.Name == apiKey.Name
}

// handled reports whether the current key, or the one before it, is the externally generated key of that digest.
func (f facts) handled(digest apikey.Digest) bool {
	record, known := f.ownRecord()
	return known && sameDigest(record.HandledDigest, &digest)
}

// replaced reports whether the externally generated key of that digest is the last handled one, and another key has replaced it over HTTP.
func (f facts) replaced(digest apikey.Digest) bool {
	record, known := f.ownRecord()
	return known && sameDigest(record.HandledDigest, &digest) && !record.Current.Digest.Equal(digest)
}

// specClaim returns the claim to spec.keyDigest; ok is false without one.
func (f facts) specClaim() (state claimState, ok bool) {
	if f.digest == nil || len(f.claims) == 0 {
		return claimState{}, false
	}
	return f.claims[0], true
}

// taken reports whether the digest belongs to another ApiKey. A claim that cannot be decoded counts as taken.
func (c claimState) taken(f facts) bool {
	if c.claim != nil {
		return !sameSource(c.claim.Source, f.apiKey)
	}
	return c.newer || c.used || c.secret != nil && !f.handled(c.digest)
}

// complete reports whether the claim is this ApiKey's and up to date.
func (c claimState) complete(f facts) bool {
	return c.claim != nil && sameSource(c.claim.Source, f.apiKey) && c.claim.Source.UID == f.apiKey.UID &&
		c.secret.Labels[published.Label] == published.LabelDigest && (c.claim.Replaced == f.replaced(c.digest) || !f.handled(c.digest))
}

// missingClaims returns the claims to write: for a key to issue, and for a current key whose claim somebody removed.
func missingClaims(f facts, issuing bool) []claimState {
	var missing []claimState
	for i, c := range f.claims {
		needed := f.handled(c.digest) || issuing && f.digest != nil && i == 0
		if needed && !c.taken(f) && !c.complete(f) {
			missing = append(missing, c)
		}
	}
	return missing
}

// errFormerPublished: the sweeper deletes the record of a former ApiKey that went without its finalizer. Until then a second record with the
// digest would open nothing: replicas give a digest of two records to the one that had it first, also when that goes.
var errFormerPublished = errors.New("claim spec.keyDigest: the key of a former ApiKey of this name is still published; it is being deleted")

// writeClaims creates claims, or takes over those of a former ApiKey of this namespace and name. If two operators
// create one at the same time, one fails and retries.
func (r *Reconciler) writeClaims(ctx context.Context, f facts, claims []claimState) error {
	for _, c := range claims {
		if c.former {
			return errFormerPublished
		}
		claim := published.DigestClaim{
			Digest:    c.digest,
			Source:    published.Source{Namespace: f.apiKey.Namespace, Name: f.apiKey.Name, UID: f.apiKey.UID},
			KeyID:     published.ID(f.apiKey.UID),
			ClaimedAt: f.now,
			Replaced:  f.replaced(c.digest),
		}
		if c.claim != nil && c.claim.Source.UID == f.apiKey.UID {
			claim.ClaimedAt = c.claim.ClaimedAt
		}
		secret, err := published.EncodeDigestClaim(r.CredentialsNamespace, claim)
		if err == nil {
			err = writes.Replace(ctx, r.Client, c.secret, secret)
		}
		if err != nil {
			return fmt.Errorf("claim spec.keyDigest: %w", err)
		}
	}
	return nil
}

// ownClaims returns the claims of the ApiKey. The cache may lack one of the last seconds; then the sweeper of claims without an owner finds
// it.
func (r *Reconciler) ownClaims(ctx context.Context, apiKey *v1alpha1.ApiKey) ([]corev1.Secret, error) {
	var claims corev1.SecretList
	own := client.MatchingFields{claimOwnerIndex: ownerName(apiKey.Namespace, apiKey.Name)}
	if err := r.Client.List(ctx, &claims, own, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("find the claims of an ApiKey: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(claims.Items), func(secret corev1.Secret) bool {
		claim, err := published.DecodeDigestClaim(&secret)
		return err != nil || claim.Source.UID != apiKey.UID
	}), nil
}

// digestClaimed: a digest belongs to one ApiKey, also if it is set in another one later.
func digestClaimed(f facts) (conditions.Outcome, bool) {
	c, ok := f.specClaim()
	return conditions.Stalled(v1alpha1.ReasonKeyDigestClaimed,
		"spec.keyDigest is claimed by another ApiKey; set the digest of another key"), ok && c.taken(f)
}

// namespaceClaimed: the digests of deleted ApiKeys of the namespace are remembered, and there is room for no others.
func namespaceClaimed(f facts) (conditions.Outcome, bool) {
	c, ok := f.specClaim()
	return conditions.Stalled(v1alpha1.ReasonTooManyKeyDigests,
			"No new digest is claimed until %s: too many digests of deleted ApiKeys of this namespace are remembered, so that their keys never open again. "+
				"Disable the key or rotate it over HTTP, or use another namespace", c.fullUntil.Format(time.RFC3339)),
		ok && !c.fullUntil.IsZero() && !f.handled(c.digest)
}

// tooManyDigests: the ApiKey itself has claimed as many as it may.
func tooManyDigests(f facts) (conditions.Outcome, bool) {
	c, ok := f.specClaim()
	return conditions.Stalled(v1alpha1.ReasonTooManyKeyDigests,
		"This ApiKey has claimed %d digests, which is the maximum; use a new ApiKey", maxClaims), ok && c.full && !f.handled(c.digest)
}

// digestReplaced: there is no record, and another key had replaced that of spec.keyDigest. Publishing it would revive it. The claim says so
// also if the ApiKey was deleted and created again.
func digestReplaced(f facts) (conditions.Outcome, bool) {
	outcome := conditions.Stalled(v1alpha1.ReasonKeyDigestUsed,
		"The key of spec.keyDigest was replaced before the published record was lost, or the ApiKey was created again; set the digest of another key")
	if _, known := f.ownRecord(); known || f.digest == nil {
		return outcome, false
	}
	if f.outdated() {
		return outcome, sameDigest(f.digest, f.record.HandledDigest)
	}
	c, ok := f.specClaim()
	return outcome, ok && c.claim != nil && c.claim.Replaced
}
