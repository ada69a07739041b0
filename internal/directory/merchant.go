package directory

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// Merchant is what the directory keeps of a published merchant. It is shared and never changed.
type Merchant struct {
	// ID is the bare id, without the "mer_" callers see.
	ID          string
	DisplayName string
	State       v1alpha1.MerchantState
	// Allowlist are the blocks callers must be in; none: any address.
	Allowlist []netip.Prefix
	RateLimit v1alpha1.RateLimit
	Sessions  v1alpha1.SessionSettings
	// TellCreated: its webhook asks for session.created.
	TellCreated bool
}

// Active reports whether the merchant may use the API.
func (m *Merchant) Active() bool { return m.State == v1alpha1.MerchantActive }

// Allows reports whether the merchant's servers may call from the address.
func (m *Merchant) Allows(address netip.Addr) bool {
	return len(m.Allowlist) == 0 ||
		slices.ContainsFunc(m.Allowlist, func(block netip.Prefix) bool { return block.Contains(address) })
}

// decodeMerchant reads a published merchant.
func decodeMerchant(configMap *corev1.ConfigMap) (*Merchant, error) {
	record, err := published.DecodeMerchant(configMap)
	if err != nil {
		return nil, err
	}
	allowlist, err := record.Allowlist()
	if err != nil {
		return nil, err
	}
	return &Merchant{
		ID:          record.MerchantID,
		DisplayName: record.DisplayName,
		State:       record.State,
		Allowlist:   allowlist,
		RateLimit:   record.RateLimit,
		Sessions:    record.Sessions,
		TellCreated: record.Webhook != nil && slices.Contains(record.Webhook.Events, v1alpha1.EventSessionCreated),
	}, nil
}
