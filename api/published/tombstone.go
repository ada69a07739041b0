package published

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TombstoneRetention is how long the deletion of an ApiKey or a Merchant is remembered.
const TombstoneRetention = 90 * 24 * time.Hour

// The kinds of a Tombstone.
const (
	TombstoneApiKey   TombstoneKind = "ApiKey"
	TombstoneMerchant TombstoneKind = "Merchant"
)

// TombstoneKind is the kind of the deleted object.
type TombstoneKind string

// Tombstone records that an ApiKey or a Merchant was deleted. A published object that is missing without one may be
// an accident.
type Tombstone struct {
	Version int           `json:"version"`
	Kind    TombstoneKind `json:"kind"`
	// ID is the key id or the merchant id.
	ID      string    `json:"id"`
	Source  Source    `json:"source"`
	EndedAt time.Time `json:"endedAt"`
	// MerchantID is the id of the Merchant of an ApiKey; empty: nothing says which one it was.
	MerchantID string `json:"merchantID,omitempty"`
}

// Expires is when the tombstone may be deleted.
func (t Tombstone) Expires() time.Time { return t.EndedAt.Add(TombstoneRetention) }

// Name is the name of the tombstone's ConfigMap.
func (t Tombstone) Name() string {
	if t.Kind == TombstoneMerchant {
		return MerchantTombstoneName(t.ID)
	}
	return KeyTombstoneName(t.ID)
}

// EncodeTombstone returns the ConfigMap of a tombstone. The error for an invalid tombstone is ErrInvalid.
func EncodeTombstone(namespace string, tombstone Tombstone) (*corev1.ConfigMap, error) {
	tombstone.Version = recordVersion
	if err := tombstone.validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(tombstone)
	if err != nil { // a time beyond the year 9999
		return nil, invalid("encode tombstone: %w", err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      tombstone.Name(),
			Labels:    map[string]string{Label: LabelTombstone},
		},
		Data: map[string]string{tombstoneData: string(data)},
	}, nil
}

// DecodeTombstone reads a tombstone. Any error wraps ErrInvalid.
func DecodeTombstone(configMap *corev1.ConfigMap) (Tombstone, error) {
	var tombstone Tombstone
	if err := decode([]byte(configMap.Data[tombstoneData]), &tombstone, &tombstone.Version); err != nil {
		return Tombstone{}, err
	}
	if err := tombstone.validate(); err != nil {
		return Tombstone{}, err
	}
	if configMap.Name != tombstone.Name() {
		return Tombstone{}, invalid("kind and id do not match the ConfigMap's name")
	}
	return tombstone, nil
}

// validate refuses a tombstone without an object.
func (t Tombstone) validate() error {
	switch {
	case t.Kind != TombstoneApiKey && t.Kind != TombstoneMerchant:
		return invalid("kind is neither ApiKey nor Merchant")
	case !ValidID(t.ID):
		return invalid("id is not an id")
	case t.Source.incomplete():
		return invalid("source is incomplete")
	case t.EndedAt.IsZero():
		return invalid("endedAt is missing")
	}
	return nil
}
