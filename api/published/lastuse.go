package published

import (
	"cmp"
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// LastUseShards is the number of ConfigMaps that hold the last uses of all keys: a million keys take 0.8 MiB of each. The dispatcher
	// may write these names only.
	LastUseShards = 32
	// lastUsesPerShard is the maximum number of entries in a ConfigMap, which may have 1 MiB. The oldest uses are left out.
	lastUsesPerShard = 36_000
	// LastUseStep is how much later a use must be than the published one to be published, so that writes do not grow
	// with traffic.
	LastUseStep = time.Hour
)

// LastUseName is the name of the ConfigMap of a shard.
func LastUseName(shard int) string { return lastUsePrefix + strconv.Itoa(shard) }

// LastUseShard is the shard of a key id.
func LastUseShard(keyID string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(keyID))
	return int(hash.Sum32() % LastUseShards)
}

// lastUses is the wire format: Unix seconds by key id.
type lastUses struct {
	Version int              `json:"version"`
	Uses    map[string]int64 `json:"uses,omitempty"`
}

// EncodeLastUses returns the ConfigMap of a shard, in the credentials namespace. The operator creates it, the dispatcher
// updates it. uses are by key id, kept to the second.
func EncodeLastUses(namespace string, shard int, uses map[string]time.Time) (*corev1.ConfigMap, error) {
	wire := lastUses{Version: recordVersion, Uses: make(map[string]int64, len(uses))}
	for keyID, used := range uses {
		wire.Uses[keyID] = used.Unix()
	}
	if surplus := len(uses) - lastUsesPerShard; surplus > 0 {
		oldest := slices.SortedFunc(maps.Keys(uses), func(a, b string) int { return cmp.Or(uses[a].Compare(uses[b]), cmp.Compare(a, b)) })
		for _, keyID := range oldest[:surplus] {
			delete(wire.Uses, keyID)
		}
	}
	data, err := json.Marshal(wire)
	if err != nil {
		return nil, invalid("encode last uses: %w", err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      LastUseName(shard),
			Labels:    map[string]string{Label: LabelLastUse},
		},
		Data: map[string]string{lastUseData: string(data)},
	}, nil
}

// DecodeLastUses returns the last uses of a shard by key id. Any error wraps ErrInvalid.
func DecodeLastUses(configMap *corev1.ConfigMap) (map[string]time.Time, error) {
	var wire lastUses
	if err := decode([]byte(configMap.Data[lastUseData]), &wire, &wire.Version); err != nil {
		return nil, err
	}
	uses := make(map[string]time.Time, len(wire.Uses))
	for keyID, seconds := range wire.Uses {
		if !ValidID(keyID) || seconds <= 0 {
			return nil, invalid("uses has an entry that is no key id with a time")
		}
		uses[keyID] = time.Unix(seconds, 0).UTC()
	}
	return uses, nil
}
