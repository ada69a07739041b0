package apikeys

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// nextRotation is when the schedule makes a new key; ok is false without a schedule, and for a key
// made elsewhere.
func nextRotation(f facts) (at time.Time, ok bool) {
	every := seconds(f.apiKey.Spec.Rotation.EverySeconds)
	record, known := f.ownRecord()
	if every == 0 || !known || f.digest != nil {
		return time.Time{}, false
	}
	return slotBefore(record.LastRotation.Time.Add(every), every, f.apiKey.UID), true
}

// slotBefore returns the last of a key's time slots that is not after due. There are ten slots or
// more to an interval, so a key is rotated up to about a tenth early; where they lie follows from its
// UID, so that ten thousand keys which were created together are not rotated in one second. And a
// rotation that comes a moment after its slot leads to the slot exactly one interval later: delays
// do not add up.
func slotBefore(due time.Time, every time.Duration, uid types.UID) time.Time {
	slot := int64((every / 10).Seconds())
	sum := sha256.Sum256([]byte(uid))
	phase := int64(binary.BigEndian.Uint64(sum[:8])>>1) % slot
	second := due.Unix()
	return time.Unix(second-(second-phase)%slot, 0).UTC()
}
