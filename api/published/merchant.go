package published

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// MerchantRecord is the published state of one Merchant.
type MerchantRecord struct {
	Version    int    `json:"version"`
	MerchantID string `json:"merchantID"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	// UID is the UID of the Merchant, to guard writes of its status; empty in records of older operators.
	UID types.UID `json:"uid,omitempty"`
	// Generation is the Merchant's metadata.generation, which orders records; 0 in records of older operators.
	Generation  int64                  `json:"generation,omitempty"`
	DisplayName string                 `json:"displayName"`
	State       v1alpha1.MerchantState `json:"state"`
	// An older operator sets it in a record that it cannot read whole.
	Revocation

	Currency v1alpha1.Currency `json:"currency"`
	// TimeZone is UTC if it is empty.
	TimeZone    v1alpha1.TimeZone  `json:"timeZone,omitempty"`
	IPAllowlist []v1alpha1.IPBlock `json:"ipAllowlist,omitempty"`
	// IPAllowlistMode is Enforce if it is empty.
	IPAllowlistMode v1alpha1.IPAllowlistMode `json:"ipAllowlistMode,omitempty"`
	RateLimit       v1alpha1.RateLimit       `json:"rateLimit"`
	Sessions        v1alpha1.SessionSettings `json:"sessions"`
	Page            *v1alpha1.PageSettings   `json:"page,omitempty"`
	// Webhook is nil for a merchant that never had one.
	Webhook *Webhook `json:"webhook,omitempty"`
}

// WebhookGrace is how long the events of a merchant wait for another webhook after its own was removed.
const WebhookGrace = 24 * time.Hour

// Webhook is where the events of a merchant go, or went. A removed one has no URL.
type Webhook struct {
	v1alpha1.Webhook
	// RemovedAt is when the operator found that the Merchant has a webhook no longer; zero: it has one. The signing secret and Events
	// stay published, and the events wait.
	RemovedAt time.Time `json:"removedAt,omitzero"`
	// Dropped: WebhookGrace is over, and events are dropped. The operator decides this alone, so a reader compares no clocks.
	Dropped bool `json:"dropped,omitempty"`
}

// Target is the fingerprint of where events go: another URL or resumeTrigger is another target; empty: there is none. It is a digest, because a URL
// may contain a merchant's own token.
func (w *Webhook) Target() string {
	if w == nil || w.Removed() {
		return ""
	}
	const size = 16 // bytes
	sum := sha256.Sum256([]byte(w.URL + "\x00" + w.ResumeTrigger))
	return hex.EncodeToString(sum[:size])
}

// Removed reports whether the Merchant has the webhook no longer.
func (w *Webhook) Removed() bool { return w != nil && !w.RemovedAt.IsZero() }

// Awaited reports whether events wait for another webhook.
func (w *Webhook) Awaited() bool { return w.Removed() && !w.Dropped }

// NewMerchantRecord converts a Merchant, which the CRD has validated. It leaves out a testTrigger that was handled, so that
// nobody repeats the test.
func NewMerchantRecord(merchant *v1alpha1.Merchant) MerchantRecord {
	var webhook *Webhook
	if merchant.Spec.Webhook != nil {
		webhook = &Webhook{Webhook: *merchant.Spec.Webhook.DeepCopy()}
	}
	if tested := merchant.Status.Webhook; webhook != nil && tested != nil && webhook.TestTrigger == tested.ObservedTestTrigger {
		webhook.TestTrigger = ""
	}
	return MerchantRecord{
		Version:         recordVersion,
		MerchantID:      ID(merchant.UID),
		Namespace:       merchant.Namespace,
		Name:            merchant.Name,
		UID:             merchant.UID,
		Generation:      merchant.Generation,
		DisplayName:     merchant.Spec.DisplayName,
		State:           merchant.Spec.State,
		Currency:        merchant.Spec.Currency,
		TimeZone:        merchant.Spec.TimeZone,
		IPAllowlist:     merchant.Spec.IPAllowlist,
		IPAllowlistMode: merchant.Spec.IPAllowlistMode,
		RateLimit:       merchant.Spec.RateLimit,
		Sessions:        merchant.Spec.Sessions,
		Page:            merchant.Spec.Page,
		Webhook:         webhook,
	}
}

// EncodeMerchant returns the ConfigMap of a record. The error for an invalid record is ErrInvalid.
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

var currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)

// EffectiveState returns the state by which replicas judge the merchant. One that is revoked is not active.
func (r MerchantRecord) EffectiveState() v1alpha1.MerchantState {
	if r.Revoked && r.State == v1alpha1.MerchantActive {
		return v1alpha1.MerchantSuspended
	}
	return r.State
}

// validate refuses a record that the data plane cannot use. Unknown types of webhook events are valid; they are never
// sent.
func (r MerchantRecord) validate() error {
	switch {
	case !ValidID(r.MerchantID):
		return invalid("merchantID is not an id")
	case r.Namespace == "" || r.Name == "":
		return invalid("namespace or name is missing")
	case r.DisplayName == "":
		return invalid("displayName is missing")
	case r.State != v1alpha1.MerchantActive && r.State != v1alpha1.MerchantSuspended && r.State != v1alpha1.MerchantClosed:
		return invalid("state is none of Active, Suspended, Closed")
	case !currencyForm.MatchString(string(r.Currency)):
		return invalid("currency is not an ISO 4217 code")
	case r.IPAllowlistMode != "" && r.IPAllowlistMode != v1alpha1.IPAllowlistEnforce && r.IPAllowlistMode != v1alpha1.IPAllowlistReport:
		return invalid("ipAllowlistMode is neither Enforce nor Report")
	case r.RateLimit.RequestsPerSecond < 1:
		return invalid("rateLimit.requestsPerSecond is below 1")
	case r.RateLimit.Burst < 1:
		return invalid("rateLimit.burst is below 1")
	case r.Sessions.LifetimeSeconds < 1:
		return invalid("sessions.lifetimeSeconds is below 1")
	case r.Sessions.IdempotencyMismatch != v1alpha1.IdempotencyMismatchReturn &&
		r.Sessions.IdempotencyMismatch != v1alpha1.IdempotencyMismatchReject:
		return invalid("sessions.idempotencyMismatch is neither Return nor Reject")
	case r.Webhook != nil && (r.Webhook.URL == "") != r.Webhook.Removed():
		return invalid("webhook has neither url nor removedAt, or both")
	}
	_, err := ParseAllowlist(r.IPAllowlist)
	return err
}

// ParseAllowlist returns the blocks that a caller's address must be in; none: any address. One invalid entry is an error,
// because a shorter allowlist could admit everyone.
func ParseAllowlist(entries []v1alpha1.IPBlock) ([]netip.Prefix, error) {
	blocks := make([]netip.Prefix, 0, len(entries))
	for i, entry := range entries {
		block, err := parseBlock(string(entry))
		if err != nil {
			return nil, invalid("ipAllowlist[%d] is neither an address nor a CIDR block", i)
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

var errBlock = errors.New("not a block")

// parseBlock reads a CIDR block, or an address as a block of one. Like the CRD it refuses host bits, zones and IPv4
// in IPv6.
func parseBlock(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" || addr.Is4In6() {
			return netip.Prefix{}, errBlock
		}
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	block, err := netip.ParsePrefix(s)
	if err != nil || block.Addr().Is4In6() || block != block.Masked() {
		return netip.Prefix{}, errBlock
	}
	return block, nil
}
