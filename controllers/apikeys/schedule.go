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
	return record.LastRotation.Time.Add(every - early(every, f.apiKey.UID)).Truncate(time.Second), true
}

// early is up to a tenth of the interval, and always the same for one key: keys that were created
// together, ten thousand of them, are not rotated in one second.
func early(every time.Duration, uid types.UID) time.Duration {
	sum := sha256.Sum256([]byte(uid))
	const parts = 1 << 16
	return every / 10 / parts * time.Duration(binary.BigEndian.Uint16(sum[:]))
}
