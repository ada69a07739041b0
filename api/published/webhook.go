package published

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// SigningOverlap is how long a rotated signing secret signs in addition to the new one.
const SigningOverlap = 24 * time.Hour

// MaxRetired is the maximum number of rotated signing secrets that sign; the oldest are dropped. Each makes the
// signature header longer.
const MaxRetired = 4

// WebhookRecord has the signing secrets of a merchant. encoding/json does not write them; only EncodeWebhook does.
type WebhookRecord struct {
	Version    int
	MerchantID string
	// Source is the Merchant.
	Source Source

	// Current is the secret in the merchant's copy.
	Current IssuedSecret
	// Retired are older secrets in their overlap, the newest first.
	Retired []RetiredSecret

	// HandledTrigger is the last handled spec.webhook.rotationTrigger.
	HandledTrigger string
	// TriggerTAT is that of a KeyRecord.
	TriggerTAT time.Time
}

// IssuedSecret is the current signing secret.
type IssuedSecret struct {
	Secret    SigningSecret
	CreatedAt time.Time
}

// RetiredSecret is a rotated signing secret and the end of its overlap.
type RetiredSecret struct {
	Secret     SigningSecret
	ValidUntil time.Time
}

// NewWebhookRecord returns the first record of a Merchant with a webhook, with a new secret.
func NewWebhookRecord(merchant *v1alpha1.Merchant, now time.Time) WebhookRecord {
	record := WebhookRecord{
		Version:    recordVersion,
		MerchantID: ID(merchant.UID),
		Source:     Source{Namespace: merchant.Namespace, Name: merchant.Name, UID: merchant.UID},
		Current:    IssuedSecret{Secret: NewSigningSecret(), CreatedAt: now.UTC()},
	}
	if merchant.Spec.Webhook != nil {
		record.HandledTrigger = merchant.Spec.Webhook.RotationTrigger
	}
	return record
}

// SigningSecrets returns the secrets that sign at the time now, the newest first.
func (r WebhookRecord) SigningSecrets(now time.Time) []SigningSecret {
	secrets := []SigningSecret{r.Current.Secret}
	for _, retired := range r.RetiredAt(now) {
		secrets = append(secrets, retired.Secret)
	}
	return secrets
}

// RetiredAt returns the retired secrets in their overlap at the time now.
func (r WebhookRecord) RetiredAt(now time.Time) []RetiredSecret {
	var signing []RetiredSecret
	for _, retired := range r.Retired {
		if now.Before(retired.ValidUntil) {
			signing = append(signing, retired)
		}
	}
	return signing
}

// Rotated returns the record after a rotation: a new current secret; the former one signs for SigningOverlap, older
// ones until their own end.
func (r WebhookRecord) Rotated(handledTrigger string, now time.Time) WebhookRecord {
	last := RetiredSecret{Secret: r.Current.Secret, ValidUntil: now.Add(SigningOverlap).UTC()}
	out := r
	out.Current = IssuedSecret{Secret: NewSigningSecret(), CreatedAt: now.UTC()}
	out.Retired = slices.Concat([]RetiredSecret{last}, r.RetiredAt(now))
	out.Retired = out.Retired[:min(len(out.Retired), MaxRetired)]
	out.HandledTrigger = handledTrigger
	return out
}

// EncodeWebhook returns the Secret of a record. The error for an invalid record is ErrInvalid.
func EncodeWebhook(namespace string, record WebhookRecord) (*corev1.Secret, error) {
	if err := record.validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(record.wire())
	if err != nil { // a time beyond the year 9999
		return nil, invalid("encode webhook record: %w", err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      WebhookName(record.MerchantID),
			Labels:    map[string]string{Label: LabelWebhook},
		},
		Type: WebhookSecretType,
		Data: map[string][]byte{webhookData: data},
	}, nil
}

// DecodeWebhook reads a published signing secret. Any error wraps ErrInvalid.
func DecodeWebhook(secret *corev1.Secret) (WebhookRecord, error) {
	if secret.Type != WebhookSecretType {
		return WebhookRecord{}, invalid("the Secret is not of type %s", WebhookSecretType)
	}
	var wire webhookWire
	if err := decode(secret.Data[webhookData], &wire, &wire.Version); err != nil {
		return WebhookRecord{}, err
	}
	record, err := wire.record()
	if err != nil {
		return WebhookRecord{}, err
	}
	if secret.Name != WebhookName(record.MerchantID) {
		return WebhookRecord{}, invalid("merchantID does not match the Secret's name")
	}
	if err := record.validate(); err != nil {
		return WebhookRecord{}, err
	}
	return record, nil
}

// webhookWire is the encoded form of a WebhookRecord, the only one with the secrets.
type webhookWire struct {
	Version        int                 `json:"version"`
	MerchantID     string              `json:"merchantID"`
	Source         Source              `json:"source"`
	Current        issuedSecretWire    `json:"current"`
	Retired        []retiredSecretWire `json:"retired,omitempty"`
	HandledTrigger string              `json:"handledTrigger,omitempty"`
	TriggerTAT     time.Time           `json:"triggerTAT,omitzero"`
}

type issuedSecretWire struct {
	Secret    string    `json:"secret"`
	CreatedAt time.Time `json:"createdAt"`
}

type retiredSecretWire struct {
	Secret     string    `json:"secret"`
	ValidUntil time.Time `json:"validUntil"`
}

func (r WebhookRecord) wire() webhookWire {
	wire := webhookWire{
		Version:        recordVersion,
		MerchantID:     r.MerchantID,
		Source:         r.Source,
		Current:        issuedSecretWire{Secret: r.Current.Secret.Reveal(), CreatedAt: r.Current.CreatedAt},
		HandledTrigger: r.HandledTrigger,
		TriggerTAT:     r.TriggerTAT,
	}
	for _, retired := range r.Retired {
		wire.Retired = append(wire.Retired, retiredSecretWire{Secret: retired.Secret.Reveal(), ValidUntil: retired.ValidUntil})
	}
	return wire
}

func (w webhookWire) record() (WebhookRecord, error) {
	current, err := ParseSigningSecret(w.Current.Secret)
	if err != nil {
		return WebhookRecord{}, invalid("current.secret: %w", err)
	}
	record := WebhookRecord{
		Version:        w.Version,
		MerchantID:     w.MerchantID,
		Source:         w.Source,
		Current:        IssuedSecret{Secret: current, CreatedAt: w.Current.CreatedAt},
		HandledTrigger: w.HandledTrigger,
		TriggerTAT:     w.TriggerTAT,
	}
	for i, retired := range w.Retired {
		secret, err := ParseSigningSecret(retired.Secret)
		if err != nil {
			return WebhookRecord{}, invalid("retired[%d].secret: %w", i, err)
		}
		record.Retired = append(record.Retired, RetiredSecret{Secret: secret, ValidUntil: retired.ValidUntil})
	}
	return record, nil
}

// validate refuses a record that cannot be used to sign.
func (r WebhookRecord) validate() error {
	switch {
	case !ValidID(r.MerchantID):
		return invalid("merchantID is not an id")
	case r.Source.incomplete():
		return invalid("source is incomplete")
	case r.Current.Secret.IsZero():
		return invalid("current.secret is missing")
	case r.Current.CreatedAt.IsZero():
		return invalid("current.createdAt is missing")
	case len(r.Retired) > MaxRetired:
		return invalid("retired has %d entries, at most %d are kept", len(r.Retired), MaxRetired)
	}
	for i, retired := range r.Retired {
		if retired.Secret.IsZero() || retired.ValidUntil.IsZero() {
			return invalid("retired[%d] is incomplete", i)
		}
	}
	return nil
}
