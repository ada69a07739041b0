package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MerchantState says whether a merchant may charge.
// +kubebuilder:validation:Enum=Active;Suspended;Closed
type MerchantState string

// States of a merchant. The data plane answers 403 to every state but Active.
const (
	MerchantActive    MerchantState = "Active"
	MerchantSuspended MerchantState = "Suspended"
	MerchantClosed    MerchantState = "Closed"
)

// IdempotencyMismatchPolicy says what a reused Idempotency-Key with a different body gets.
// +kubebuilder:validation:Enum=Return;Reject
type IdempotencyMismatchPolicy string

// Policies for a reused Idempotency-Key with a different body.
const (
	// IdempotencyMismatchReturn answers with the original session and a header that says so.
	IdempotencyMismatchReturn IdempotencyMismatchPolicy = "Return"
	// IdempotencyMismatchReject answers 400.
	IdempotencyMismatchReject IdempotencyMismatchPolicy = "Reject"
)

// IPBlock is an IPv4 or IPv6 address, or a CIDR block without host bits. An IPv4 address inside an
// IPv6 one is refused: callers are compared in their own family, so it would match nobody.
// +kubebuilder:validation:MinLength=2
// +kubebuilder:validation:MaxLength=43
// +kubebuilder:validation:XValidation:rule="isIP(self) || (isCIDR(self) && cidr(self) == cidr(self).masked())",message="must be an IP address (198.51.100.7) or a CIDR block without host bits (203.0.113.0/24)"
type IPBlock string

// WebhookEvent is a kind of event a merchant can be told of.
// +kubebuilder:validation:Enum=session.created;session.completed;session.failed;session.expired;session.cancelled;session.late_payment;session.payment_mismatch;key.rotated
type WebhookEvent string

// Kinds of event.
const (
	// EventSessionCreated is sent only to merchants that ask for it by name.
	EventSessionCreated   WebhookEvent = "session.created"
	EventSessionCompleted WebhookEvent = "session.completed"
	EventSessionFailed    WebhookEvent = "session.failed"
	EventSessionExpired   WebhookEvent = "session.expired"
	EventSessionCancelled WebhookEvent = "session.cancelled"
	// EventLatePayment tells of money that arrived after the session had ended; it is refunded.
	EventLatePayment WebhookEvent = "session.late_payment"
	// EventPaymentMismatch tells of money that is not the session's amount; it is refunded.
	EventPaymentMismatch WebhookEvent = "session.payment_mismatch"
	EventKeyRotated      WebhookEvent = "key.rotated"
)

// RateLimit bounds the requests of one merchant, over all its keys and all replicas of the API.
type RateLimit struct {
	// requestsPerSecond is the sustained rate, in requests per second.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +kubebuilder:default=50
	// +optional
	RequestsPerSecond int32 `json:"requestsPerSecond,omitempty"`

	// burst is how many requests may come at once before the rate applies.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +kubebuilder:default=100
	// +optional
	Burst int32 `json:"burst,omitempty"`
}

// SessionSettings are the terms of the payment sessions a merchant creates.
type SessionSettings struct {
	// lifetimeSeconds is the time from a session's creation to its expiry, in seconds.
	// It applies to sessions created after the change.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=900
	// +optional
	LifetimeSeconds int32 `json:"lifetimeSeconds,omitempty"`

	// idempotencyMismatch says what a reused Idempotency-Key with a different body gets:
	// Return the original session, or Reject with 400.
	// +kubebuilder:default=Return
	// +optional
	IdempotencyMismatch IdempotencyMismatchPolicy `json:"idempotencyMismatch,omitempty"`
}

// Webhook says where a merchant's events go.
type Webhook struct {
	// url receives every event as an HTTP POST. It must be absolute, with the scheme https
	// (http only works where the platform's operator has opened it), without user info or fragment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['https', 'http'] && url(self).getHostname() != ''",message="must be an absolute http(s) URL such as https://shop.example/hooks"
	// +kubebuilder:validation:XValidation:rule="!self.contains('#') && !self.matches('^[^/?]*://[^/?]*@')",message="must not carry user info or a fragment"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]*$')",message="must be visible ASCII; write other characters percent-encoded"
	// +kubebuilder:validation:XValidation:rule="!isURL(self) || url(self).getPort() == '' || (size(url(self).getPort()) <= 5 && int(url(self).getPort()) >= 1 && int(url(self).getPort()) <= 65535)",message="must have a port from 1 to 65535, or none"
	// +required
	URL string `json:"url,omitempty"`

	// events are the kinds of event to send; empty or absent: all but session.created.
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +optional
	Events []WebhookEvent `json:"events,omitempty"`

	// secretName is the Secret beside the Merchant that receives the signing secret.
	// Absent: the Merchant's name followed by "-webhook".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// rotationTrigger is opaque: any change of it makes a new signing secret. For a day both the old
	// and the new one sign.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	RotationTrigger string `json:"rotationTrigger,omitempty"`

	// resumeTrigger is opaque: any change of it sends events again to an endpoint that was disabled
	// because it failed for too long or said that it is gone.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	ResumeTrigger string `json:"resumeTrigger,omitempty"`
}

// MerchantSpec is what the platform team decides about a merchant.
type MerchantSpec struct {
	// displayName is the name payers see. Characters that cannot be seen or that turn the direction
	// of the text are refused, for they could make one merchant look like another.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="!self.matches('[\\\\p{Cc}\\\\x{2028}-\\\\x{202e}\\\\x{2066}-\\\\x{2069}]') && self.trim() == self",message="must not contain control characters nor begin or end with a space"
	// +required
	DisplayName string `json:"displayName,omitempty"`

	// state says whether the merchant may charge; the API answers 403 to anything but Active.
	// +kubebuilder:default=Active
	// +optional
	State MerchantState `json:"state,omitempty"`

	// ipAllowlist are the addresses the merchant's servers call from; empty or absent: any address.
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	IPAllowlist []IPBlock `json:"ipAllowlist,omitempty"`

	// rateLimit bounds the merchant's requests.
	// +kubebuilder:default={}
	// +optional
	RateLimit RateLimit `json:"rateLimit,omitzero"`

	// sessions are the terms of the merchant's payment sessions.
	// +kubebuilder:default={}
	// +optional
	Sessions SessionSettings `json:"sessions,omitzero"`

	// webhook says where the merchant's events go; absent: nowhere.
	// +optional
	Webhook *Webhook `json:"webhook,omitempty"`
}

// MerchantStatus is what the operator has made of a Merchant.
type MerchantStatus struct {
	// observedGeneration is the metadata.generation this status speaks of; -1 before the first one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// merchantID is the public identifier, "mer_" and 12 characters; it is of this object's UID,
	// so a Merchant that is deleted and created again is a new merchant.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	MerchantID string `json:"merchantID,omitempty"`

	// webhookSecretName is the Secret beside the Merchant that the signing secret of the webhook was
	// delivered in last; absent without a webhook.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	WebhookSecretName string `json:"webhookSecretName,omitempty"`

	// conditions are Ready, Reconciling or Stalled only while true, and what the dispatcher has to say
	// of the webhook: WebhookHealthy, absent as long as nothing was ever wrong.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Merchant is a business that charges through the payment API.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mer,categories=payments
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Display name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.status.merchantID`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be no more than 63 characters"
type Merchant struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the platform team decides about the merchant.
	// +required
	Spec MerchantSpec `json:"spec,omitzero"`

	// status is what the operator has made of it.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status MerchantStatus `json:"status,omitzero"`
}

// MerchantList is a list of Merchants.
//
// +kubebuilder:object:root=true
type MerchantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Merchant `json:"items"`
}
