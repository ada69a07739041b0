package published

import "time"

// webhookWire is a WebhookRecord as it is written: the one form that spells its secrets out.
type webhookWire struct {
	Version        int                 `json:"version"`
	MerchantID     string              `json:"merchantID"`
	Source         Source              `json:"source"`
	Current        issuedSecretWire    `json:"current"`
	Retired        []retiredSecretWire `json:"retired,omitempty"`
	HandledTrigger string              `json:"handledTrigger,omitempty"`
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
