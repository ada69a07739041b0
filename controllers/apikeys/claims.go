package apikeys

import (
	"context"
	"errors"
	"fmt"
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

// maxClaims bounds the digests that one ApiKey may have claimed: every change of spec.keyDigest makes
// an object that stays.
const maxClaims = 32

// claimState is what is known of the claim to one digest.
type claimState struct {
	digest apikey.Digest
	secret *corev1.Secret         // nil: there is none
	claim  *published.DigestClaim // nil: none that can be read
	newer  bool                   // a newer operator wrote it
	// used says that the published record of another ApiKey has the digest, so that a claim which
	// somebody removed cannot be taken.
	used bool
	// full says that there is no claim, and that the ApiKey may not make another.
	full bool
}

// gatherClaims reads the claims to spec.keyDigest and to the digest that was handled last.
func (r *Reconciler) gatherClaims(ctx context.Context, from client.Reader, f *facts) error {
	wanted := []*apikey.Digest{f.digest}
	if record, known := f.ownRecord(); known && !sameDigest(record.HandledDigest, f.digest) {
		wanted = append(wanted, record.HandledDigest)
	}
	for _, digest := range wanted {
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
			return state, nil
		}
	case !apierrors.IsNotFound(err):
		return state, fmt.Errorf("read Secret %s: %w", key, err)
	}
	// The cache alone has these indexes. It may lag behind what was written a moment ago, not behind
	// what somebody's claim was removed from.
	var records, claims corev1.SecretList
	if err := r.Client.List(ctx, &records, client.MatchingFields{digestIndex: digest.Hex()}, client.UnsafeDisableDeepCopy); err != nil {
		return state, fmt.Errorf("find published keys of a digest: %w", err)
	}
	for i := range records.Items {
		record, err := published.DecodeKey(&records.Items[i])
		state.used = state.used || err == nil && !sameSource(record.Source, f.apiKey)
	}
	own := client.MatchingFields{claimOwnerIndex: ownerName(f.apiKey.Namespace, f.apiKey.Name)}
	if err := r.Client.List(ctx, &claims, own, client.UnsafeDisableDeepCopy); err != nil {
		return state, fmt.Errorf("find the claims of an ApiKey: %w", err)
	}
	state.full = state.secret == nil && len(claims.Items) >= maxClaims
	return state, nil
}

// sameSource reports whether it is the ApiKey of that namespace and name. One that was deleted and
// created again keeps its claims: a tenant is a namespace.
func sameSource(source published.Source, apiKey *v1alpha1.ApiKey) bool {
	return source.Namespace == apiKey.Namespace && source.Name == apiKey.Name
}

// handled reports whether the key in force, or the one before it, is the externally generated one of that digest.
func (f facts) handled(digest apikey.Digest) bool {
	record, known := f.ownRecord()
	return known && sameDigest(record.HandledDigest, &digest)
}

// claimOf returns the claim to spec.keyDigest; ok is false without one.
func (f facts) claimOf() (state claimState, ok bool) {
	if f.digest == nil || len(f.claims) == 0 {
		return claimState{}, false
	}
	return f.claims[0], true
}

// taken reports whether the digest is another ApiKey's. A claim that cannot be read may be anybody's.
func (c claimState) taken(f facts) bool {
	if c.claim != nil {
		return !sameSource(c.claim.Source, f.apiKey)
	}
	return c.newer || c.used || c.secret != nil && !f.handled(c.digest)
}

// complete reports whether the claim is this ApiKey's and as it should be.
func (c claimState) complete(f facts) bool {
	return c.claim != nil && sameSource(c.claim.Source, f.apiKey) && c.claim.Source.UID == f.apiKey.UID &&
		c.secret.Labels[published.Label] == published.LabelDigest
}

// missingClaims are those to be written: for a key about to be issued, and for one in force whose
// claim somebody removed.
func missingClaims(f facts, issuing bool) []claimState {
	var missing []claimState
	for i, c := range f.claims {
		wanted := f.handled(c.digest) || issuing && f.digest != nil && i == 0
		if wanted && !c.taken(f) && !c.complete(f) {
			missing = append(missing, c)
		}
	}
	return missing
}

// writeClaims creates claims, or takes over those of a former ApiKey of this namespace and name. Of
// two operators that create one at once, one fails and tries again.
func (r *Reconciler) writeClaims(ctx context.Context, f facts, claims []claimState) error {
	for _, c := range claims {
		claim := published.DigestClaim{
			Digest:    c.digest,
			Source:    published.Source{Namespace: f.apiKey.Namespace, Name: f.apiKey.Name, UID: f.apiKey.UID},
			KeyID:     published.ID(f.apiKey.UID),
			ClaimedAt: f.now,
		}
		if c.claim != nil && c.claim.Source.UID == f.apiKey.UID {
			claim.ClaimedAt = c.claim.ClaimedAt
		}
		secret, err := published.EncodeDigestClaim(r.CredentialsNamespace, claim)
		if err == nil {
			err = writes.ReplaceSecret(ctx, r.Client, c.secret, secret)
		}
		if err != nil {
			return fmt.Errorf("claim spec.keyDigest: %w", err)
		}
	}
	return nil
}

// digestClaimed: a digest opens one merchant's sessions, whoever writes it into an ApiKey later.
func digestClaimed(f facts) (conditions.Outcome, bool) {
	c, ok := f.claimOf()
	return conditions.Stalled(v1alpha1.ReasonKeyDigestClaimed,
		"spec.keyDigest is claimed by another ApiKey; set the digest of another key"), ok && c.taken(f)
}

func tooManyDigests(f facts) (conditions.Outcome, bool) {
	c, ok := f.claimOf()
	return conditions.Stalled(v1alpha1.ReasonTooManyKeyDigests,
		"This ApiKey has claimed %d digests, which is the maximum; use a new ApiKey", maxClaims), ok && c.full && !f.handled(c.digest)
}

// digestReplaced: the record is lost, and the key of spec.keyDigest was replaced over HTTP before. To
// publish it again would revive it.
func digestReplaced(f facts) (conditions.Outcome, bool) {
	outcome := conditions.Stalled(v1alpha1.ReasonKeyDigestUsed,
		"The published record was lost, and the key of spec.keyDigest had been replaced through the API; set the digest of another key")
	if _, known := f.ownRecord(); known || f.digest == nil {
		return outcome, false
	}
	last := f.apiKey.Status.LastRotation
	overHTTP := last != nil && last.Cause == v1alpha1.RotationAPI
	if f.outdated() {
		return outcome, sameDigest(f.digest, f.record.HandledDigest) && (f.record.Superseded || overHTTP)
	}
	c, ok := f.claimOf()
	return outcome, ok && overHTTP && c.complete(f) && c.claim.ClaimedAt.Before(last.Time.Add(time.Second))
}
