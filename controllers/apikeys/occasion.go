package apikeys

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// occasion is why a new key is needed, and how long the one it replaces goes on.
type occasion struct {
	cause   v1alpha1.RotationCause
	overlap time.Duration
}

// occasionFor returns the first occasion that applies; ok is false when the key in force may stay.
func occasionFor(f facts) (why occasion, ok bool) {
	for _, rule := range []func(facts) (occasion, bool){
		recordLost, merchantReplaced, digestChanged, triggerChanged, scheduleElapsed,
	} {
		if why, ok = rule(f); ok {
			return why, true
		}
	}
	return occasion{}, false
}

// recordLost: the first issue, and the loss of the truth about a key. What cannot be proven live is
// dead, so nothing overlaps.
func recordLost(f facts) (occasion, bool) {
	_, ok := f.ownRecord()
	return occasion{cause: v1alpha1.RotationInitial}, !ok
}

// merchantReplaced: a Merchant that was created again under its old name is another one, and the
// key of the former must not charge for it.
func merchantReplaced(f facts) (occasion, bool) {
	return occasion{cause: v1alpha1.RotationInitial}, f.record.MerchantID != f.merchantID
}

// digestChanged: another key made elsewhere, or a change between keys made elsewhere and made here.
// An unchanged digest is no occasion, or Git would undo every rotation over HTTP.
func digestChanged(f facts) (occasion, bool) {
	return occasion{v1alpha1.RotationTrigger, overlap(f)}, !sameDigest(f.digest, f.record.HandledDigest)
}

// triggerChanged: any change. It cannot make a key that is made elsewhere.
func triggerChanged(f facts) (occasion, bool) {
	changed := f.apiKey.Spec.Rotation.Trigger != f.record.HandledTrigger
	return occasion{v1alpha1.RotationTrigger, overlap(f)}, changed && f.digest == nil
}

// scheduleElapsed: once after any downtime, for the next one counts from the rotation.
func scheduleElapsed(f facts) (occasion, bool) {
	next, scheduled := nextRotation(f)
	return occasion{v1alpha1.RotationSchedule, overlap(f)}, scheduled && !f.now.Before(next)
}

func overlap(f facts) time.Duration { return seconds(f.apiKey.Spec.Rotation.OverlapSeconds) }

// seconds reads a field in seconds; absent: 0.
func seconds(field *int32) time.Duration {
	if field == nil {
		return 0
	}
	return time.Duration(*field) * time.Second
}

func sameDigest(a, b *apikey.Digest) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}
