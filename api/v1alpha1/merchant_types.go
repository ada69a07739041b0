package v1alpha1

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MerchantState says whether keys of the merchant are accepted. One of Active, Suspended, Closed.
// +kubebuilder:validation:Enum=Active;Suspended;Closed
type MerchantState string

// States of a merchant. In every state but Active the API answers 403.
const (
	MerchantActive    MerchantState = "Active"
	MerchantSuspended MerchantState = "Suspended"
	MerchantClosed    MerchantState = "Closed"
)

// IdempotencyMismatchPolicy is the answer to a reused Idempotency-Key with a different body. One of Return, Reject.
// +kubebuilder:validation:Enum=Return;Reject
type IdempotencyMismatchPolicy string

// Policies for a reused Idempotency-Key with a different body.
const (
	// IdempotencyMismatchReturn answers with the original session and the header Idempotency-Mismatch.
	IdempotencyMismatchReturn IdempotencyMismatchPolicy = "Return"
	// IdempotencyMismatchReject answers 400.
	IdempotencyMismatchReject IdempotencyMismatchPolicy = "Reject"
)

// IPAllowlistMode says what happens to requests from addresses that are not on the allowlist. One of Enforce, Report.
// +kubebuilder:validation:Enum=Enforce;Report
type IPAllowlistMode string

// Modes of an allowlist. In both, requests from blocked addresses are counted in status.allowlist.
const (
	// IPAllowlistEnforce answers 401.
	IPAllowlistEnforce IPAllowlistMode = "Enforce"
	// IPAllowlistReport answers as if there were no allowlist.
	IPAllowlistReport IPAllowlistMode = "Report"
)

// IPBlock is an IPv4 or IPv6 address, or a CIDR block without host bits. IPv4 addresses inside IPv6 are refused,
// because they would match no caller.
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="isIP(self) || (isCIDR(self) && cidr(self) == cidr(self).masked())",message="must be an IP address (198.51.100.7) or a CIDR block without host bits (203.0.113.0/24)"
type IPBlock string

// Currency is the ISO 4217 code of a currency in use, in upper case.
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self in ['AED','AFN','ALL','AMD','AOA','ARS','AUD','AWG','AZN','BAM','BBD','BDT','BHD','BIF','BMD','BND','BOB','BRL','BSD','BTN','BWP','BYN','BZD','CAD','CDF','CHF','CLP','CNY','COP','CRC','CUP','CVE','CZK','DJF','DKK','DOP','DZD','EGP','ERN','ETB','EUR','FJD','FKP','GBP','GEL','GHS','GIP','GMD','GNF','GTQ','GYD','HKD','HNL','HTG','HUF','IDR','ILS','INR','IQD','IRR','ISK','JMD','JOD','JPY','KES','KGS','KHR','KMF','KPW','KRW','KWD','KYD','KZT','LAK','LBP','LKR','LRD','LSL','LYD','MAD','MDL','MGA','MKD','MMK','MNT','MOP','MRU','MUR','MVR','MWK','MXN','MYR','MZN','NAD','NGN','NIO','NOK','NPR','NZD','OMR','PAB','PEN','PGK','PHP','PKR','PLN','PYG','QAR','RON','RSD','RUB','RWF','SAR','SBD','SCR','SDG','SEK','SGD','SHP','SLE','SOS','SRD','SSP','STN','SVC','SYP','SZL','THB','TJS','TMT','TND','TOP','TRY','TTD','TWD','TZS','UAH','UGX','USD','UYU','UZS','VES','VND','VUV','WST','XAF','XCD','XCG','XOF','XPF','YER','ZAR','ZMW','ZWG']",message="must be the ISO 4217 code of a currency in use, in upper case, such as EUR"
type Currency string

// DefaultCurrency is that of a Merchant that names none.
const DefaultCurrency Currency = "USD"

// TimeZone is the name of a zone in the IANA time zone database. The rule has the API server load it, as it does for a CronJob.
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$') && self != 'Local' && timestamp('2026-01-01T00:00:00Z').getFullYear(self) > 0",message="must be the name of a time zone in the IANA database, such as Europe/Berlin or UTC"
type TimeZone string

// DefaultTimeZone is that of a Merchant that names none.
const DefaultTimeZone TimeZone = "UTC"

// Location loads the zone. It is UTC for the empty name, and for one that this program does not know because the API server has a newer
// database: a merchant must not fail for it.
func (z TimeZone) Location() *time.Location {
	location, err := time.LoadLocation(string(z))
	if err != nil {
		return time.UTC
	}
	return location
}

// WebhookEvent is a type of event that a webhook can receive.
// +kubebuilder:validation:Enum=session.created;session.completed;session.failed;session.expired;session.cancelled;session.late_payment;session.payment_mismatch;session.payment_refunded;session.refund_requested;session.refund_rejected;key.rotated
type WebhookEvent string

// Types of events.
const (
	// EventSessionCreated is sent only if spec.webhook.events lists it.
	EventSessionCreated   WebhookEvent = "session.created"
	EventSessionCompleted WebhookEvent = "session.completed"
	EventSessionFailed    WebhookEvent = "session.failed"
	EventSessionExpired   WebhookEvent = "session.expired"
	EventSessionCancelled WebhookEvent = "session.cancelled"
	// EventLatePayment: money arrived after the session had ended; it is refunded.
	EventLatePayment WebhookEvent = "session.late_payment"
	// EventPaymentMismatch: money arrived with another amount than the session's; it is refunded.
	EventPaymentMismatch WebhookEvent = "session.payment_mismatch"
	// EventPaymentRefunded: a payment, or a part of it, went back to the payer, as the rail has confirmed.
	EventPaymentRefunded WebhookEvent = "session.payment_refunded"
	// EventRefundRequested: the merchant has asked for a refund.
	EventRefundRequested WebhookEvent = "session.refund_requested"
	// EventRefundRejected: the rail will not pay back what the merchant has asked for.
	EventRefundRejected WebhookEvent = "session.refund_rejected"
	EventKeyRotated     WebhookEvent = "key.rotated"
	// EventWebhookTest is sent for each change of spec.webhook.testTrigger. No subscription is needed, so
	// spec.webhook.events cannot list it.
	EventWebhookTest WebhookEvent = "webhook.test"
)

// WebhookEvents returns the types of events that spec.webhook.events can list.
func WebhookEvents() []WebhookEvent {
	return []WebhookEvent{
		EventSessionCreated, EventSessionCompleted, EventSessionFailed, EventSessionExpired, EventSessionCancelled, EventLatePayment,
		EventPaymentMismatch, EventPaymentRefunded, EventRefundRequested, EventRefundRejected, EventKeyRotated,
	}
}

// Listed reports whether a webhook with this list of events receives the type. An empty list is all but session.created, which would
// double the number of events. A test needs no subscription.
func (e WebhookEvent) Listed(events []WebhookEvent) bool {
	switch {
	case e == EventWebhookTest:
		return true
	case len(events) == 0:
		return e != EventSessionCreated
	}
	return slices.Contains(events, e)
}

// RateLimit limits the requests of one merchant, over all its keys and all replicas of the API.
type RateLimit struct {
	// requestsPerSecond is the sustained rate, in requests per second. Default: 50. Requests above the limit get 429.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	// +kubebuilder:default=50
	// +optional
	RequestsPerSecond int32 `json:"requestsPerSecond,omitempty"`

	// burst is the number of requests that may come at once. Default: 100.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +kubebuilder:default=100
	// +optional
	Burst int32 `json:"burst,omitempty"`
}

// SessionSettings are the settings of the payment sessions that a merchant creates.
type SessionSettings struct {
	// lifetimeSeconds is the time from the creation of a session to its expiry, in seconds. Default: 900 (15 minutes).
	// A change applies to new sessions only.
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	// +kubebuilder:default=900
	// +optional
	LifetimeSeconds int32 `json:"lifetimeSeconds,omitempty"`

	// idempotencyMismatch is the answer to a reused Idempotency-Key with a different body. Return (the default)
	// answers with the original session, Reject answers 400.
	// +kubebuilder:default=Return
	// +optional
	IdempotencyMismatch IdempotencyMismatchPolicy `json:"idempotencyMismatch,omitempty"`
}

// Webhook is the endpoint that receives the events of a merchant.
type Webhook struct {
	// url receives each event as an HTTP POST. It is absolute, has the scheme https, and has no user info and no
	// fragment. The scheme http works only if the dispatcher runs with --webhook-allow-http.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['https', 'http'] && url(self).getHostname() != ''",message="must be an absolute http(s) URL such as https://shop.example/hooks"
	// +kubebuilder:validation:XValidation:rule="!self.contains('#') && !self.matches('^[^/?]*://[^/?]*@')",message="must not contain user info (user@) or a fragment (#)"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]*$')",message="must be visible ASCII; write other characters percent-encoded"
	// +kubebuilder:validation:XValidation:rule="!isURL(self) || url(self).getPort() == '' || (size(url(self).getPort()) <= 5 && int(url(self).getPort()) >= 1 && int(url(self).getPort()) <= 65535)",message="must have a port from 1 to 65535, or none"
	// +required
	URL string `json:"url,omitempty"`

	// events are the types of events to send. Default: all types except session.created.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(e, self.exists_one(f, f == e))",message="must not have the same event twice"
	// +listType=atomic
	// +optional
	Events []WebhookEvent `json:"events,omitempty"`

	// secretName is the Secret in the namespace of the Merchant that receives the signing secret, under the data key
	// secret. Default: the name of the Merchant followed by "-webhook". A Secret that belongs to another owner is not
	// changed.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a Secret: lower-case letters, digits, - and ."
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// rotationTrigger is any text, for example a date. Each change creates a new signing secret. For 24 hours events
	// carry signatures with both the old and the new secret.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	RotationTrigger string `json:"rotationTrigger,omitempty"`

	// resumeTrigger is any text, for example a date. Each change enables an endpoint that was disabled, because it
	// failed for too long or answered 410.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	ResumeTrigger string `json:"resumeTrigger,omitempty"`

	// testTrigger is any text, for example a date. Each change to a text that was not used before sends one event of
	// type webhook.test to the endpoint, whatever events lists.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	TestTrigger string `json:"testTrigger,omitempty"`
}

// PageSettings change the page on which payers pay.
type PageSettings struct {
	// accentColor is the colour of links and buttons, as "#rrggbb". Where it does not contrast enough with the page, the page
	// uses its own colour. Default: the page's own colour.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^#[0-9A-Fa-f]{6}$')",message="must be a color like #0b6e4f"
	// +optional
	AccentColor string `json:"accentColor,omitempty"`

	// returnURL is where the page sends the payer back to, after the end of the session. It is absolute, has the scheme https
	// and has no user info. {sessionId} in it stands for the id of the session. A charge may name another URL with the same host
	// and port. Default: none, the page offers no link.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != ''",message="must be an absolute https URL such as https://shop.example/thanks"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^/?#]*://[^/?#]*@')",message="must not contain user info (user@)"
	// +kubebuilder:validation:XValidation:rule="!self.replace('{sessionId}', '').matches('[{}]')",message="must have braces only in {sessionId}"
	// +kubebuilder:validation:XValidation:rule="self.matches('^[!-~]*$')",message="must be visible ASCII; write other characters percent-encoded"
	// +optional
	ReturnURL string `json:"returnURL,omitempty"`

	// showOrder shows the orderRef on the page of a paid session. Everyone who has the address of the page, or a photograph of its QR
	// code, then sees it. Default: false.
	// +optional
	ShowOrder bool `json:"showOrder,omitempty"`
}

// MerchantSpec is the desired state of a Merchant.
type MerchantSpec struct {
	// displayName is the name that payers see. It must not contain control characters, characters that nobody sees, characters
	// that change the text direction, other spaces than plain and ideographic ones, or two spaces in a row, because they could make
	// one merchant look like another. Words of scripts that need joiners, and emoji, may have them.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="size(self) >= 1 && size(self) <= 128",message="must have 1 to 128 characters"
	// +kubebuilder:validation:XValidation:rule="self.trim() == self",message="must not begin or end with a space"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[^\\\\P{Zs} \\\\x{3000}]|[ \\\\x{3000}]{2}')",message="must have plain spaces, and no two in a row: nobody sees the difference"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[\\\\p{Cc}\\\\p{Co}\\\\x{ad}\\\\x{34f}\\\\x{61c}\\\\x{115f}\\\\x{1160}\\\\x{17b4}\\\\x{17b5}\\\\x{180b}-\\\\x{180f}\\\\x{200b}\\\\x{200e}\\\\x{200f}\\\\x{2028}-\\\\x{202e}\\\\x{2060}-\\\\x{206f}\\\\x{2800}\\\\x{3164}\\\\x{fe00}-\\\\x{fe0d}\\\\x{feff}\\\\x{ffa0}\\\\x{fff0}-\\\\x{fffb}\\\\x{fffe}\\\\x{ffff}\\\\x{1bca0}-\\\\x{1bca3}\\\\x{1d173}-\\\\x{1d17a}\\\\x{e0000}-\\\\x{e0fff}]')",message="must not contain control characters, characters that nobody sees or that change the text direction"
	// +kubebuilder:validation:XValidation:rule="!self.matches('(^|[\\\\p{Latin}\\\\p{Greek}\\\\p{Cyrillic}\\\\p{Han}\\\\p{Hangul}\\\\p{Hiragana}\\\\p{Katakana}\\\\p{Z}\\\\p{P}\\\\p{N}])[\\\\x{200c}\\\\x{200d}]|[\\\\x{200c}\\\\x{200d}]($|[\\\\p{Latin}\\\\p{Greek}\\\\p{Cyrillic}\\\\p{Han}\\\\p{Hangul}\\\\p{Hiragana}\\\\p{Katakana}\\\\p{Z}\\\\p{P}\\\\p{N}])|(^|[\\\\p{L}\\\\p{M}\\\\p{Z}])[\\\\x{fe0e}\\\\x{fe0f}]')",message="must not contain joiners or variation selectors where nobody sees what they do"
	// +kubebuilder:validation:XValidation:rule="!self.matches('[\\\\p{Mn}\\\\p{Me}]{5}') && (size(self) == 0 || self.matches('[\\\\p{L}\\\\p{N}\\\\p{P}\\\\p{S}]'))",message="must have a letter, a digit or a sign, and at most 4 marks on one of them"
	// +required
	DisplayName string `json:"displayName,omitempty"`

	// state says whether the API accepts requests with keys of this merchant. Active (the default): yes. Suspended (a
	// pause) and Closed (an ended contract): they get 403. Payers can still read existing sessions.
	// +kubebuilder:default=Active
	// +optional
	State MerchantState `json:"state,omitempty"`

	// currency is the ISO 4217 code of the currency of all amounts, which are in its minor unit: 1250 is 12.50 USD, 1250 JPY
	// or 1.250 KWD. Payers see it. A change applies to new sessions only. Default: USD.
	// +kubebuilder:default=USD
	// +optional
	Currency Currency `json:"currency,omitempty"`

	// timeZone is the IANA name of the time zone of the business, such as Europe/Berlin: it says when its day begins. Default: UTC.
	// +optional
	TimeZone TimeZone `json:"timeZone,omitempty"`

	// ipAllowlist are the IP addresses and CIDR blocks from which keys of this merchant are accepted. Requests from
	// other addresses get 401. Default: any address.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(b, self.exists_one(c, c == b))",message="must not have the same entry twice"
	// +listType=atomic
	// +optional
	IPAllowlist []IPBlock `json:"ipAllowlist,omitempty"`

	// ipAllowlistMode says what happens to requests from addresses that are not in ipAllowlist. Enforce (the default):
	// they get 401. Report: they are answered as if there were no allowlist. In both modes status.allowlist counts them.
	// +kubebuilder:default=Enforce
	// +optional
	IPAllowlistMode IPAllowlistMode `json:"ipAllowlistMode,omitempty"`

	// rateLimit limits the requests of the merchant, over all its keys and all replicas of the API.
	// +kubebuilder:default={}
	// +optional
	RateLimit RateLimit `json:"rateLimit,omitzero"`

	// sessions are the settings of the payment sessions of the merchant.
	// +kubebuilder:default={}
	// +optional
	Sessions SessionSettings `json:"sessions,omitzero"`

	// page changes the page on which payers pay. Default: its own colour, and no link back to the shop.
	// +optional
	Page *PageSettings `json:"page,omitempty"`

	// webhook is the endpoint that receives the events of the merchant. Default: none, no events are sent.
	// +optional
	Webhook *Webhook `json:"webhook,omitempty"`
}

// WebhookStatus is what the dispatcher has seen of an endpoint. A change of its health is written within seconds, times
// and counts at most every ten minutes.
type WebhookStatus struct {
	// lastDelivery is the last event that the endpoint accepted; absent: none.
	// +optional
	LastDelivery *WebhookDelivery `json:"lastDelivery,omitempty"`

	// lastFailure is the last attempt that failed; absent: none.
	// +optional
	LastFailure *WebhookFailure `json:"lastFailure,omitempty"`

	// pending is the number of events that wait for delivery, now or later.
	// +optional
	Pending int64 `json:"pending,omitempty"`

	// dead is the number of dead letters of the last 30 days.
	// +optional
	Dead int64 `json:"dead,omitempty"`

	// observedTestTrigger is the last spec.webhook.testTrigger for which an event was queued.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	ObservedTestTrigger string `json:"observedTestTrigger,omitempty"`
}

// WebhookDelivery is an attempt that an endpoint answered with 2xx.
type WebhookDelivery struct {
	// time is when the attempt ended, in RFC 3339.
	// +required
	Time metav1.Time `json:"time,omitzero"`
}

// WebhookFailure is a failed attempt.
type WebhookFailure struct {
	// time is when the attempt ended, in RFC 3339.
	// +required
	Time metav1.Time `json:"time,omitzero"`

	// reason is the kind of failure, one of the reasons of the condition WebhookHealthy.
	// +kubebuilder:validation:MaxLength=64
	// +required
	Reason string `json:"reason,omitempty"`

	// statusCode is the HTTP status of the answer; absent without an answer.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=999
	// +optional
	StatusCode int32 `json:"statusCode,omitempty"`
}

// AllowlistStatus is about blocked addresses: requests with a good key from addresses that spec.ipAllowlist, or that of the ApiKey, does not allow. A new block is
// written within a minute, times and counts at most every ten minutes.
type AllowlistStatus struct {
	// refused are the address blocks with the most such requests, these first: /24 of IPv4, /48 of IPv6. A block is removed a day after
	// its last request, or when spec.ipAllowlist changes for an address of it. A change of an ApiKey's list removes none.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Refused []RefusedBlock `json:"refused,omitempty"`

	// otherRequests is the number of such requests from all other blocks. If it is high, the key is used from many networks.
	// +optional
	OtherRequests int64 `json:"otherRequests,omitempty"`
}

// RefusedBlock is a block of blocked addresses: requests from it were refused, or would have been without the mode Report.
type RefusedBlock struct {
	// block is the CIDR block, for example 203.0.113.0/24.
	// +kubebuilder:validation:MaxLength=43
	// +required
	Block string `json:"block,omitempty"`

	// keyID is the key id of the ApiKey whose own spec.ipAllowlist does not allow the block, while that of the Merchant does; absent: that of the
	// Merchant does not.
	// +kubebuilder:validation:MaxLength=12
	// +optional
	KeyID string `json:"keyID,omitempty"`

	// requests is the number of requests. It starts again after a day without one.
	// +required
	Requests int64 `json:"requests,omitempty"`

	// lastSeen is the time of the last request, in RFC 3339.
	// +required
	LastSeen metav1.Time `json:"lastSeen,omitzero"`
}

// MerchantStatus is the observed state of a Merchant.
type MerchantStatus struct {
	// observedGeneration is the metadata.generation that this status describes; -1 until the operator has seen the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// merchantID is the public id, "mer_" and 12 characters. It is derived from the UID of this object, so a Merchant
	// that is deleted and created again is a new merchant.
	// +kubebuilder:validation:MaxLength=16
	// +optional
	MerchantID string `json:"merchantID,omitempty"`

	// webhookSecretName is the Secret that last received the signing secret of the webhook; absent without a webhook.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	WebhookSecretName string `json:"webhookSecretName,omitempty"`

	// webhook is what the dispatcher has seen of the endpoint; absent without a webhook, and before the first event.
	// +optional
	Webhook *WebhookStatus `json:"webhook,omitempty"`

	// allowlist has the blocked addresses of the last day; absent: there are none.
	// +optional
	Allowlist *AllowlistStatus `json:"allowlist,omitempty"`

	// conditions are Ready (always), Reconciling and Stalled (only while true), and WebhookHealthy (from the first
	// event on; written by the dispatcher).
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Merchant is a business that takes payments through the API.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mer,categories=payments
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Display name",type=string,JSONPath=`.spec.displayName`
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.status.merchantID`
// +kubebuilder:printcolumn:name="Webhook",type=string,JSONPath=`.status.conditions[?(@.type=="WebhookHealthy")].reason`
// +kubebuilder:printcolumn:name="Allowlist",type=string,priority=1,JSONPath=`.spec.ipAllowlistMode`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be no more than 63 characters"
type Merchant struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state, written by the platform team.
	// +required
	Spec MerchantSpec `json:"spec,omitzero"`

	// status is the observed state, written by the operator and the dispatcher.
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
