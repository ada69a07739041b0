package apikeys

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// OldKeyTimes say when an old key counts as used.
type OldKeyTimes struct {
	// Window: a key that was used within it is in use.
	Window time.Duration
	// Evidence is how old the uses that were read last may be. Older ones do not show that a key is not used.
	Evidence time.Duration
	// Warning is how long before the end of an overlap people are warned.
	Warning time.Duration
	// Check is how often uses are read during an overlap.
	Check time.Duration
}

// DefaultOldKeyTimes are those of a Deployment. Uses are recorded and published in steps of ten minutes, so evidence is up to half an hour old.
func DefaultOldKeyTimes() OldKeyTimes {
	return OldKeyTimes{Window: 2 * time.Hour, Evidence: 30 * time.Minute, Warning: time.Hour, Check: 5 * time.Minute}
}

// oldKey is an old key that is still accepted.
type oldKey struct {
	published.Previous
	use useState
}

// useState says whether a key is used.
type useState int

const (
	useUnknown useState = iota
	unused
	used
)

// acceptedOldKeys returns the old keys that are accepted, the newest first.
func (f facts) acceptedOldKeys() []oldKey {
	record, known := f.ownRecord()
	if !known || !record.Usable(f.now) {
		return nil
	}
	var keys []oldKey
	for _, previous := range record.PreviousAt(f.now) {
		if end := expiry(f); !end.IsZero() && end.Before(previous.ValidUntil) {
			previous.ValidUntil = end
		}
		state, _ := f.use(previous)
		keys = append(keys, oldKey{previous, state})
	}
	return keys
}

// use returns whether an old key is used, and if that is unknown, why. A known use counts for as long as the window. That there is none needs
// evidence: uses were read a short time ago, of this ApiKey, and none was lost in the window before.
func (f facts) use(key published.Previous) (state useState, missing string) {
	last := f.uses.Uses.Last(key.Digest)
	read := f.uses.ReadTime
	age := f.now.Sub(read)
	fresh := !read.IsZero() && !f.clockWrong && age <= f.times.Evidence && -age <= f.times.Evidence
	// A late report is no reason to forget a use: until the evidence is too old, the end of the window is when uses were read.
	end := f.now
	if fresh && read.Before(end) {
		end = read
	}
	begin := end.Add(-f.times.Window)
	switch {
	case last.After(begin):
		return used, ""
	case read.IsZero():
		return useUnknown, "no dispatcher has read the uses of this key yet"
	case !fresh:
		return useUnknown, "the uses of keys were last read at " + read.Format(time.RFC3339)
	case f.uses.RecordingSince.After(begin):
		return useUnknown, "Redis is new or has lost data, and uses are recorded since " + f.uses.RecordingSince.Format(time.RFC3339)
	case last.IsZero() && f.uses.Uses.CompleteSince().After(begin):
		return useUnknown, "there were too many rotations to know the uses of each key"
	}
	return unused, ""
}

// oldKeyInUse returns the condition; nil: there is no key yet.
func oldKeyInUse(f facts) *metav1.Condition {
	record, known := f.ownRecord()
	if !known || !record.Issued() {
		return nil
	}
	keys := f.acceptedOldKeys()
	condition := func(status metav1.ConditionStatus, reason, format string, args ...any) *metav1.Condition {
		return &metav1.Condition{Type: v1alpha1.OldKeyInUseCondition, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	if key, found := firstToEnd(keys, used); found {
		reason := v1alpha1.ReasonOldKeyUsed
		if f.endsSoon(key) {
			reason = v1alpha1.ReasonOverlapEndsSoon
		}
		return condition(metav1.ConditionTrue, reason, "%s was used within %s. It gets 401 from %s on; give the new key to who still uses it",
			key.name(), duration(f.times.Window), key.ValidUntil.Format(time.RFC3339))
	}
	if key, found := firstToEnd(keys, useUnknown); found {
		_, missing := f.use(key.Previous)
		return condition(metav1.ConditionUnknown, v1alpha1.ReasonUsesUnknown, "It is unknown whether %s is used: %s. It gets 401 from %s on",
			key.name(), missing, key.ValidUntil.Format(time.RFC3339))
	}
	if _, pending := rotationNeeded(f); pending {
		return condition(metav1.ConditionUnknown, v1alpha1.ReasonRotationPending, "The current key is not replaced yet; see Ready")
	}
	if key, found := firstToEnd(keys, unused); found {
		return condition(metav1.ConditionFalse, v1alpha1.ReasonOldKeyUnused, "No old key was used within %s. %s gets 401 from %s on",
			duration(f.times.Window), key.name(), key.ValidUntil.Format(time.RFC3339))
	}
	return condition(metav1.ConditionFalse, v1alpha1.ReasonNoOldKey, "No old key is accepted")
}

// firstToEnd returns the key of this state that ends first. They are in the order of their ends, the first of them last.
func firstToEnd(keys []oldKey, state useState) (first oldKey, found bool) {
	for _, key := range keys {
		if key.use == state && (!found || !first.ValidUntil.Before(key.ValidUntil)) {
			first, found = key, true
		}
	}
	return first, found
}

func (k oldKey) name() string {
	if k.Prefix == "" {
		return "An externally generated old key"
	}
	return "The old key " + k.Prefix
}

// endsSoon reports whether it is time to warn of the end of an overlap.
func (f facts) endsSoon(key oldKey) bool { return !f.now.Before(key.ValidUntil.Add(-f.times.Warning)) }

// duration is a time like 2h or 90s.
func duration(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return d.String()
}

// oldKeyChecks returns when the condition must be looked at again: as long as an old key is accepted, for new evidence, and when
// people are to be warned.
func oldKeyChecks(f facts) []time.Time {
	keys := f.acceptedOldKeys()
	if len(keys) == 0 {
		return nil
	}
	checks := []time.Time{f.now.Add(f.times.Check)}
	for _, key := range keys {
		if warning := key.ValidUntil.Add(-f.times.Warning); f.now.Before(warning) {
			checks = append(checks, warning)
		}
	}
	return checks
}

// endings returns the overlaps that end soon while the old key is used, or may be.
func endings(f facts) []ending {
	var soon []ending
	for _, key := range f.acceptedOldKeys() {
		if key.use != unused && f.endsSoon(key) {
			soon = append(soon, ending{at: key.ValidUntil, used: key.use == used})
		}
	}
	return soon
}

const (
	// currentUseStep is how much later a use of the current key must be than the one in the status: every key in use costs a write.
	currentUseStep = time.Hour
	// oldUseStep is that of an old key.
	oldUseStep = published.LastUseStep
)

// shownUse returns the last use that the status is to have: the one it has, if that is less than a step behind.
func shownUse(uses published.DigestUses, digest apikey.Digest, shown *metav1.Time, step time.Duration) *metav1.Time {
	last := uses.Last(digest)
	if last.IsZero() {
		return nil
	}
	if shown != nil && !last.Before(shown.Time) && last.Sub(shown.Time) < step {
		return shown
	}
	return &metav1.Time{Time: last}
}

// shownBefore returns the last use that a status has of an old key.
func shownBefore(status v1alpha1.ApiKeyStatus, key v1alpha1.PreviousKey) *metav1.Time {
	for _, shown := range status.PreviousKeys {
		if shown.Prefix == key.Prefix && shown.ValidUntil.Equal(&key.ValidUntil) {
			return shown.LastUsedTime
		}
	}
	return nil
}

// LastUseOutdated reports whether uses of the ApiKey are to be in its status.
func LastUseOutdated(ctx context.Context, cache client.Reader, namespace string, apiKey *v1alpha1.ApiKey, uses published.DigestUses) (bool, error) {
	shown := apiKey.Status.LastUsedTime
	if shown != nil && shown.Time.Add(currentUseStep).After(uses.Latest()) {
		return false, nil
	}
	secret := new(corev1.Secret)
	name := client.ObjectKey{Namespace: namespace, Name: published.KeyName(published.ID(apiKey.UID))}
	if err := cache.Get(ctx, name, secret, client.UnsafeDisableDeepCopy); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	record, err := published.DecodeKey(secret)
	if errors.Is(err, published.ErrInvalid) || record.Source.UID != apiKey.UID {
		return false, nil // there is nothing to compare with
	}
	desired := shownUse(uses, record.Current.Digest, shown, currentUseStep)
	return desired != nil && !desired.Equal(shown), nil
}
