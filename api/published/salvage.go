package published

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// maxNumber is what a number in JSON and in Lua still holds exactly.
const maxNumber = 1 << 53

// ReadableGeneration returns the generation a published key's Secret tells of although DecodeKey may
// refuse the rest, and 0 when it tells none. Generations never fall, so a record that takes the place
// of a broken one counts on from there.
func ReadableGeneration(secret *corev1.Secret) int64 {
	var record struct {
		Generation int64 `json:"generation"`
	}
	if json.Unmarshal(secret.Data[keyData], &record) != nil || record.Generation < 0 || record.Generation >= maxNumber {
		return 0
	}
	return record.Generation
}
