package published

import (
	"encoding/json"
	"slices"
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
	Superseded bool                 `json:"superseded,omitempty"`
	Test       bool                 `json:"test,omitempty"`
	State      v1alpha1.ApiKeyState `json:"state"`
	ExpiresAt  *time.Time           `json:"expiresAt,omitempty"`
	Revocation
	Permissions []v1alpha1.Permission `json:"permissions,omitzero"`
	IPAllowlist []v1alpha1.IPBlock    `json:"ipAllowlist,omitempty"`
}

// noAddress stands for an entry of an allowlist that this version cannot read. No client has it, and a list with it is not empty.
const noAddress v1alpha1.IPBlock = "0.0.0.0"

// readBlocks replaces the entries that this version cannot read.
func readBlocks(entries []v1alpha1.IPBlock) {
	for i, entry := range entries {
		if _, err := parseBlock(string(entry)); err != nil {
			entries[i] = noAddress
		}
	}
}

// Revocation ends all keys of a record, whatever its state.
type Revocation struct {
	Revoked bool `json:"revoked,omitempty"`
	// RevokedBy is the revoker of the operator that set Revoked; 0: unknown. An operator takes back only what it could have set itself.
	RevokedBy int `json:"revokedBy,omitempty"`
}

// revoker is the version of the reasons for which an operator sets Revoked. Raise it when there is another reason, also if the version of
// the records stays: an operator that does not know the reason must not take the revocation back.
const revoker = 1

// Final returns the revocation if this version must not take it back, because it does not know the reason; else none.
func (r Revocation) Final() Revocation {
	if r.Revoked && 0 < r.RevokedBy && r.RevokedBy <= revoker {
		return Revocation{}
	}
	return r
}

// set returns the revocation that this version wants.
func (r Revocation) set(revoked bool) Revocation {
	switch final := r.Final(); {
	case final.Revoked:
		return final
	case revoked:
		return Revocation{true, revoker}
	}
	return Revocation{}
}

// DecodeKeyEnvelope reads the envelope of a published key of any version, and nothing else. A state that this version does not know
// is Disabled, and an address block that it does not know has no address. Any error wraps ErrInvalid.
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
	readBlocks(e.IPAllowlist)
	record := KeyRecord{
		Version: e.Version, KeyID: e.KeyID, MerchantID: e.MerchantID, Source: e.Source, Generation: e.Generation, Revision: e.Revision,
		Current: e.Current, Revocation: e.Revocation, Superseded: e.Superseded, Test: e.Test, State: e.State, ExpiresAt: e.ExpiresAt,
		Permissions: e.Permissions, IPAllowlist: e.IPAllowlist,
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
	Revocation
	IPAllowlist     []v1alpha1.IPBlock       `json:"ipAllowlist,omitempty"`
	IPAllowlistMode v1alpha1.IPAllowlistMode `json:"ipAllowlistMode,omitempty"`
}

// DecodeMerchantEnvelope reads the envelope of a published merchant of any version, and nothing else. A state that this version does
// not know is Suspended, a mode of the allowlist is Enforce, and an address block has no address. Any error wraps ErrInvalid.
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
	if e.IPAllowlistMode != v1alpha1.IPAllowlistReport {
		e.IPAllowlistMode = v1alpha1.IPAllowlistEnforce
	}
	readBlocks(e.IPAllowlist)
	return MerchantRecord{
		Version: e.Version, MerchantID: e.MerchantID, Namespace: e.Namespace, Name: e.Name, State: e.State, Revocation: e.Revocation,
		IPAllowlist: e.IPAllowlist, IPAllowlistMode: e.IPAllowlistMode,
	}, nil
}

// webhookEnvelope is that of a WebhookRecord.
type webhookEnvelope struct {
	Version    int    `json:"version"`
	MerchantID string `json:"merchantID"`
	Source     Source `json:"source"`
}

// DecodeWebhookEnvelope reads the envelope of a published signing secret of any version, and nothing else: whose it is. Any error wraps
// ErrInvalid.
func DecodeWebhookEnvelope(secret *corev1.Secret) (WebhookRecord, error) {
	var e webhookEnvelope
	if secret.Type != WebhookSecretType {
		return WebhookRecord{}, invalid("the Secret is not of type %s", WebhookSecretType)
	}
	if err := unmarshal(secret.Data[webhookData], &e); err != nil {
		return WebhookRecord{}, err
	}
	if secret.Name != WebhookName(e.MerchantID) || !ValidID(e.MerchantID) || e.Source.incomplete() {
		return WebhookRecord{}, invalid("merchantID does not match the Secret's name, or source is incomplete")
	}
	return WebhookRecord{Version: e.Version, MerchantID: e.MerchantID, Source: e.Source}, nil
}

// KeyRestriction is what an operator writes into the envelope of a record of a newer version.
type KeyRestriction struct {
	Revoked     bool
	Permissions []v1alpha1.Permission
	IPAllowlist []v1alpha1.IPBlock
}

// RestrictKey returns a published key of any version with a restriction and a higher revision; nil: it has that already. This version does
// not take back every revocation. All else stays as it is. An error wraps ErrInvalid.
func RestrictKey(secret *corev1.Secret, want KeyRestriction, now time.Time) (*corev1.Secret, error) {
	record, err := DecodeKeyEnvelope(secret)
	revocation, fields := record.set(want.Revoked), map[string]any{}
	if !slices.Equal(want.Permissions, record.Permissions) || (want.Permissions == nil) != (record.Permissions == nil) {
		fields["permissions"] = want.Permissions
	}
	if !slices.Equal(want.IPAllowlist, record.IPAllowlist) {
		fields["ipAllowlist"] = want.IPAllowlist
	}
	if err != nil || revocation == record.Revocation && len(fields) == 0 {
		return nil, err
	}
	fields["revision"] = record.NextRevision(now)
	data, err := edited(secret.Data[keyData], revocation, fields)
	if err != nil {
		return nil, err
	}
	out := secret.DeepCopy()
	out.Data[keyData] = data
	return out, nil
}

// RevokeKey is RestrictKey for the revocation alone.
func RevokeKey(secret *corev1.Secret, revoked bool, now time.Time) (*corev1.Secret, error) {
	record, err := DecodeKeyEnvelope(secret)
	if err != nil {
		return nil, err
	}
	return RestrictKey(secret, KeyRestriction{revoked, record.Permissions, record.IPAllowlist}, now)
}

// MerchantRestriction is what an operator writes into the envelope of a published merchant of a newer version.
type MerchantRestriction struct {
	Revoked     bool
	IPAllowlist []v1alpha1.IPBlock
	Mode        v1alpha1.IPAllowlistMode
}

// RestrictMerchant is RestrictKey for a published merchant, which has no revision.
func RestrictMerchant(configMap *corev1.ConfigMap, want MerchantRestriction) (*corev1.ConfigMap, error) {
	record, err := DecodeMerchantEnvelope(configMap)
	revocation, fields := record.set(want.Revoked), map[string]any{}
	if !slices.Equal(want.IPAllowlist, record.IPAllowlist) {
		fields["ipAllowlist"] = want.IPAllowlist
	}
	if want.Mode != record.IPAllowlistMode {
		fields["ipAllowlistMode"] = want.Mode
	}
	if err != nil || revocation == record.Revocation && len(fields) == 0 {
		return nil, err
	}
	data, err := edited([]byte(configMap.Data[merchantData]), revocation, fields)
	if err != nil {
		return nil, err
	}
	out := configMap.DeepCopy()
	out.Data[merchantData] = string(data)
	return out, nil
}

// RevokeMerchant is RestrictMerchant for the revocation alone.
func RevokeMerchant(configMap *corev1.ConfigMap, revoked bool) (*corev1.ConfigMap, error) {
	record, err := DecodeMerchantEnvelope(configMap)
	if err != nil {
		return nil, err
	}
	return RestrictMerchant(configMap, MerchantRestriction{revoked, record.IPAllowlist, record.IPAllowlistMode})
}

// edited returns a JSON object with the revocation and these fields set.
func edited(object []byte, revocation Revocation, fields map[string]any) ([]byte, error) {
	fields["revoked"], fields["revokedBy"] = revocation.Revoked, revocation.RevokedBy
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
