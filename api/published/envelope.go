package published

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// The envelope of a record is the part that no version changes: the same fields, with the same meaning, at the same place. A program
// that reads a newer version refuses by it, and an older operator revokes by it. What is not in it may have any shape.

// keyEnvelope is that of a KeyRecord.
type keyEnvelope struct {
	Version    int                  `json:"version"`
	KeyID      string               `json:"keyID"`
	MerchantID string               `json:"merchantID"`
	Source     Source               `json:"source"`
	Generation int64                `json:"generation"`
	Revision   int64                `json:"revision"`
	Current    Current              `json:"current"`
	Revoked    bool                 `json:"revoked,omitempty"`
	Superseded bool                 `json:"superseded,omitempty"`
	Test       bool                 `json:"test,omitempty"`
	State      v1alpha1.ApiKeyState `json:"state"`
	ExpiresAt  *time.Time           `json:"expiresAt,omitempty"`
}

// DecodeKeyEnvelope reads the envelope of a published key of any version, and nothing else. A state that this version does not know
// is Disabled. Any error wraps ErrInvalid.
func DecodeKeyEnvelope(secret *corev1.Secret) (KeyRecord, error) {
	var e keyEnvelope
	if secret.Type != KeySecretType {
		return KeyRecord{}, invalid("the Secret is not of type %s", KeySecretType)
	}
	if err := unmarshal(secret.Data[keyData], &e); err != nil {
		return KeyRecord{}, err
	}
	if secret.Name != KeyName(e.KeyID) {
		return KeyRecord{}, invalid("keyID does not match the Secret's name")
	}
	if e.State != v1alpha1.ApiKeyActive {
		e.State = v1alpha1.ApiKeyDisabled
	}
	record := KeyRecord{
		Version: e.Version, KeyID: e.KeyID, MerchantID: e.MerchantID, Source: e.Source, Generation: e.Generation, Revision: e.Revision,
		Current: e.Current, Revoked: e.Revoked, Superseded: e.Superseded, Test: e.Test, State: e.State, ExpiresAt: e.ExpiresAt,
	}
	whole := record
	whole.LastRotation = RotationEvent{Time: e.Current.CreatedAt, Cause: v1alpha1.RotationInitial} // not in the envelope
	if err := whole.validate(); err != nil {
		return KeyRecord{}, err
	}
	return record, nil
}

// merchantEnvelope is that of a MerchantRecord.
type merchantEnvelope struct {
	Version    int                    `json:"version"`
	MerchantID string                 `json:"merchantID"`
	Namespace  string                 `json:"namespace"`
	Name       string                 `json:"name"`
	State      v1alpha1.MerchantState `json:"state"`
	Revoked    bool                   `json:"revoked,omitempty"`
}

// DecodeMerchantEnvelope reads the envelope of a published merchant of any version, and nothing else. A state that this version does
// not know is Suspended. Any error wraps ErrInvalid.
func DecodeMerchantEnvelope(configMap *corev1.ConfigMap) (MerchantRecord, error) {
	var e merchantEnvelope
	if err := unmarshal([]byte(configMap.Data[merchantData]), &e); err != nil {
		return MerchantRecord{}, err
	}
	if configMap.Name != MerchantName(e.MerchantID) || !ValidID(e.MerchantID) {
		return MerchantRecord{}, invalid("merchantID does not match the ConfigMap's name")
	}
	if e.State != v1alpha1.MerchantActive && e.State != v1alpha1.MerchantClosed {
		e.State = v1alpha1.MerchantSuspended
	}
	return MerchantRecord{
		Version: e.Version, MerchantID: e.MerchantID, Namespace: e.Namespace, Name: e.Name, State: e.State, Revoked: e.Revoked,
	}, nil
}

// RevokeKey returns a published key of any version with its record revoked, or not revoked any more, and a higher revision; nil: it is
// so already. All else stays as it is. An error wraps ErrInvalid.
func RevokeKey(secret *corev1.Secret, revoked bool, now time.Time) (*corev1.Secret, error) {
	record, err := DecodeKeyEnvelope(secret)
	if err != nil || record.Revoked == revoked {
		return nil, err
	}
	data, err := edited(secret.Data[keyData], map[string]any{"revoked": revoked, "revision": record.NextRevision(now)})
	if err != nil {
		return nil, err
	}
	out := secret.DeepCopy()
	out.Data[keyData] = data
	return out, nil
}

// RevokeMerchant is RevokeKey for a published merchant, which has no revision.
func RevokeMerchant(configMap *corev1.ConfigMap, revoked bool) (*corev1.ConfigMap, error) {
	record, err := DecodeMerchantEnvelope(configMap)
	if err != nil || record.Revoked == revoked {
		return nil, err
	}
	data, err := edited([]byte(configMap.Data[merchantData]), map[string]any{"revoked": revoked})
	if err != nil {
		return nil, err
	}
	out := configMap.DeepCopy()
	out.Data[merchantData] = string(data)
	return out, nil
}

// edited returns a JSON object with these fields set.
func edited(object []byte, fields map[string]any) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := unmarshal(object, &all); err != nil {
		return nil, err
	}
	for name, value := range fields {
		data, err := json.Marshal(value)
		if err != nil {
			return nil, invalid("encode %s: %w", name, err)
		}
		all[name] = data
	}
	data, err := json.Marshal(all)
	if err != nil {
		return nil, invalid("encode the record: %w", err)
	}
	return data, nil
}
