package published

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// MerchantRecord is what the data plane knows of one Merchant.
type MerchantRecord struct {
	Version    int    `json:"version"`
	MerchantID string `json:"merchantID"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	// UID is the Merchant's, to guard a write to its status; empty in records of older operators.
	UID         types.UID                `json:"uid,omitempty"`
	DisplayName string                   `json:"displayName"`
	State       v1alpha1.MerchantState   `json:"state"`
	IPAllowlist []v1alpha1.IPBlock       `json:"ipAllowlist,omitempty"`
	RateLimit   v1alpha1.RateLimit       `json:"rateLimit"`
	Sessions    v1alpha1.SessionSettings `json:"sessions"`
	Webhook     *v1alpha1.Webhook        `json:"webhook,omitempty"`
}

// NewMerchantRecord translates a Merchant. The CRD's rules have checked it; EncodeMerchant checks again.
func NewMerchantRecord(merchant *v1alpha1.Merchant) MerchantRecord {
	return MerchantRecord{
		Version:     recordVersion,
		MerchantID:  ID(merchant.UID),
		Namespace:   merchant.Namespace,
		Name:        merchant.Name,
		UID:         merchant.UID,
		DisplayName: merchant.Spec.DisplayName,
		State:       merchant.Spec.State,
		IPAllowlist: merchant.Spec.IPAllowlist,
		RateLimit:   merchant.Spec.RateLimit,
		Sessions:    merchant.Spec.Sessions,
		Webhook:     merchant.Spec.Webhook,
	}
}

// EncodeMerchant returns the ConfigMap that publishes a record in the credentials namespace. An
// invalid record is refused with ErrInvalid.
func EncodeMerchant(namespace string, record MerchantRecord) (*corev1.ConfigMap, error) {
	record.Version = recordVersion
	if err := record.validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode merchant record: %w", err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      MerchantName(record.MerchantID),
			Labels:    map[string]string{Label: LabelMerchant},
		},
		Data: map[string]string{merchantData: string(data)},
	}, nil
}

// DecodeMerchant reads a published merchant. Any error wraps ErrInvalid.
func DecodeMerchant(configMap *corev1.ConfigMap) (MerchantRecord, error) {
	var record MerchantRecord
	if err := decode([]byte(configMap.Data[merchantData]), &record, &record.Version); err != nil {
		return MerchantRecord{}, err
	}
	if configMap.Name != MerchantName(record.MerchantID) {
		return MerchantRecord{}, invalid("merchantID does not match the ConfigMap's name")
	}
	if err := record.validate(); err != nil {
		return MerchantRecord{}, err
	}
	return record, nil
}
