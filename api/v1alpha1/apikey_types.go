package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ApiKeyState says whether a key is accepted. One of Active, Disabled.
// +kubebuilder:validation:Enum=Active;Disabled
type ApiKeyState string

// States of a key. A Disabled key gets the same 401 as an unknown one.
const (
	ApiKeyActive   ApiKeyState = "Active"
	ApiKeyDisabled ApiKeyState = "Disabled"
)

// ApiKeyMode says whether the sessions of a key are about real money. One of Live, Test.
// +kubebuilder:validation:Enum=Live;Test
type ApiKeyMode string

// Modes of a key.
const (
	ModeLive ApiKeyMode = "Live"
	// ModeTest: sessions of the key are apart from live ones, and no rail settles them.
	ModeTest ApiKeyMode = "Test"
)

// Permission is something that a key may do. One of create, read, list, cancel, rotate, refund.
// +kubebuilder:validation:Enum=create;read;list;cancel;rotate;refund
type Permission string

// Permissions of a key.
const (
	// PermissionCreate: create sessions, and play their payments in test mode.
	PermissionCreate Permission = "create"
	// PermissionRead: read one session by its id or those of an order, and the profile of merchant and key.
	PermissionRead Permission = "read"
	// PermissionList: list the events, and the sessions of a day: the turnover of the shop.
	PermissionList Permission = "list"
	// PermissionCancel: cancel sessions.
	PermissionCancel Permission = "cancel"
	// PermissionRotate: rotate the key itself over HTTP.
	PermissionRotate Permission = "rotate"
	// PermissionRefund: ask for refunds.
	PermissionRefund Permission = "refund"
)

// Permissions returns all permissions.
func Permissions() []Permission {
	return []Permission{PermissionCreate, PermissionRead, PermissionList, PermissionCancel, PermissionRotate, PermissionRefund}
}

// ImpliedPermissions returns what a key may do whose spec and record name no permissions: all but refund, or each till of before could give money
// back.
func ImpliedPermissions() []Permission {
	return slices.DeleteFunc(Permissions(), func(p Permission) bool { return p == PermissionRefund })
}

// TillPermissions returns what a till needs. A thief of the key cannot see the turnover, nor rotate the key to lock the shop out.
func TillPermissions() []Permission {
	return []Permission{PermissionCreate, PermissionRead, PermissionCancel}
}

// RotationCause says why a key was issued. One of Initial, Trigger, Schedule, API, Recovery.
// +kubebuilder:validation:Enum=Initial;Trigger;Schedule;API;Recovery
type RotationCause string

// Causes of a rotation.
const (
	// RotationInitial: the first key of an ApiKey, or of another Merchant with the name of a deleted one.
	RotationInitial RotationCause = "Initial"
	// RotationTrigger: spec.rotation.trigger or spec.keyDigest changed, or spec.delivery.policy while nobody had a key.
	RotationTrigger RotationCause = "Trigger"
	// RotationSchedule: spec.rotation.everySeconds elapsed.
	RotationSchedule RotationCause = "Schedule"
	// RotationAPI: the merchant called POST /api/v1/keys/rotate, or the console the internal API.
	RotationAPI RotationCause = "API"
	// RotationRecovery: the published record of a live key was lost.
	RotationRecovery RotationCause = "Recovery"
)

// MerchantReference names a Merchant in the namespace of the ApiKey.
type MerchantReference struct {
	// name is the name of the Merchant.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="size(self) <= 63 && self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a Merchant in the same namespace: at most 63 lower-case letters, digits, - and ."
	// +required
	Name string `json:"name,omitempty"`
}

// DeliveryPolicy says whether the operator delivers the plaintext of a key. One of Secret, None.
// +kubebuilder:validation:Enum=Secret;None
type DeliveryPolicy string

// Policies of delivery.
const (
	// DeliverySecret: the operator generates the keys and delivers them in a Secret.
	DeliverySecret DeliveryPolicy = "Secret"
	// DeliveryNone: keys are issued by rotation over HTTP only, and no Secret has one.
	DeliveryNone DeliveryPolicy = "None"
)

// Delivery says how the plaintext of a generated key is delivered.
//
// +kubebuilder:validation:XValidation:rule="self.policy != 'None' || !has(self.secretName)",fieldPath=".secretName",message="secretName needs policy Secret: with policy None no Secret is written"
// +kubebuilder:validation:XValidation:rule="self.policy != 'None' || self.retainSeconds == 0",fieldPath=".retainSeconds",message="retainSeconds needs policy Secret: with policy None no Secret is written"
type Delivery struct {
	// policy is Secret (the default) or None. Secret: the operator generates the keys and delivers them in a Secret. None:
	// the operator writes no Secret, and nobody has a key until the first rotation over HTTP, for example in the console. A
	// change keeps the current key: to None, the delivered Secret is deleted; to Secret, a key that nobody has is replaced.
	// +kubebuilder:default=Secret
	// +optional
	Policy DeliveryPolicy `json:"policy,omitempty"`

	// secretName is the Secret in the namespace of the ApiKey that receives the key, under the data keys apiKey, keyID
	// and prefix. Default: the name of the ApiKey followed by "-key". A change moves the key to the new name. A Secret
	// that belongs to another owner is not changed.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a Secret: lower-case letters, digits, - and ."
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// retainSeconds is the time after which the delivered Secret is deleted, in seconds since the key was issued. The
	// key stays valid. Default: 0, the Secret is kept.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:default=0
	// +optional
	RetainSeconds *int32 `json:"retainSeconds,omitempty"`
}

// Rotation says when a key is replaced by a new one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.everySeconds) || !has(self.overlapSeconds) || self.overlapSeconds <= self.everySeconds",fieldPath=".overlapSeconds",message="overlapSeconds (default: 86400, one day) must not be longer than everySeconds: old keys would pile up, and the oldest be refused before its time"
type Rotation struct {
	// trigger is any text, for example a date. Each change rotates the key once. It has no effect on an externally
	// generated key; change keyDigest instead.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Trigger string `json:"trigger,omitempty"`

	// everySeconds is the maximum age of a key, in seconds. Default: no limit. The key is rotated up to a tenth of that
	// time earlier, so that keys created together do not all rotate at once. It has no effect on an externally
	// generated key.
	// +kubebuilder:validation:Minimum=300
	// +kubebuilder:validation:Maximum=315360000
	// +optional
	EverySeconds *int32 `json:"everySeconds,omitempty"`

	// overlapSeconds is the time for which the old key stays valid after a rotation by trigger or schedule, in seconds.
	// Default: 86400 (one day). At most everySeconds. Each old key stays valid until its own end. A later rotation can shorten that time to
	// its own overlap, and never extends it. 0, or a rotation over HTTP: all old keys are refused at once.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:default=86400
	// +optional
	OverlapSeconds *int32 `json:"overlapSeconds,omitempty"`
}

// ApiKeySpec is the desired state of an ApiKey.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.delivery) && has(self.keyDigest))",fieldPath=".keyDigest",message="delivery and keyDigest exclude each other: an externally generated key is not delivered"
// +kubebuilder:validation:XValidation:rule="!has(self.delivery) || self.delivery.policy != 'None' || !has(self.rotation.trigger) || size(self.rotation.trigger) == 0",fieldPath=".rotation.trigger",message="rotation.trigger needs delivery.policy Secret: nobody would get the new key; rotate it over HTTP"
// +kubebuilder:validation:XValidation:rule="!has(self.delivery) || self.delivery.policy != 'None' || !has(self.rotation.everySeconds)",fieldPath=".rotation.everySeconds",message="rotation.everySeconds needs delivery.policy Secret: nobody would get the new key; rotate it over HTTP"
type ApiKeySpec struct {
	// merchantRef is the Merchant that this key belongs to, in the same namespace. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="merchantRef is immutable; create another ApiKey instead"
	// +required
	MerchantRef MerchantReference `json:"merchantRef,omitzero"`

	// state says whether the key is accepted. Active (the default): yes. Disabled: it gets the same 401 as an unknown key.
	// +kubebuilder:default=Active
	// +optional
	State ApiKeyState `json:"state,omitempty"`

	// mode is Live (the default) or Test. A test key begins with mk_test_. Its sessions are apart from live ones: no rail settles
	// them, and the merchant ends them itself. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="mode is immutable; create another ApiKey instead"
	// +kubebuilder:default=Live
	// +optional
	Mode ApiKeyMode `json:"mode,omitempty"`

	// permissions are what the key may do: create (sessions), read (one session by its id or order, and merchant/me), list (events, and the
	// sessions of a day), cancel (sessions), rotate (the key itself over HTTP), refund (ask for refunds). Other requests get 403. Default: all
	// but refund. A change takes effect as soon as the watch of each replica of the API has seen it.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=6
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q == p))",message="must not have the same permission twice"
	// +listType=atomic
	// +optional
	Permissions []Permission `json:"permissions,omitempty"`

	// ipAllowlist are the IP addresses and CIDR blocks from which this key is accepted. They narrow spec.ipAllowlist of the Merchant: an address
	// must be in both lists. spec.ipAllowlistMode of the Merchant is for both. Default: any address that the Merchant allows.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(b, self.exists_one(c, c == b))",message="must not have the same entry twice"
	// +listType=atomic
	// +optional
	IPAllowlist []IPBlock `json:"ipAllowlist,omitempty"`

	// delivery says how the plaintext of the key is delivered. It excludes keyDigest. Default: in a Secret named like the
	// ApiKey, followed by "-key".
	// +optional
	Delivery *Delivery `json:"delivery,omitempty"`

	// keyDigest is the SHA-256 of an externally generated key, as 64 lower-case hex digits. The plaintext never enters
	// the cluster. The key must have 32 to 256 visible ASCII characters. It excludes delivery.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{64}$')",message="must be the SHA-256 of the key, as 64 lower-case hex digits"
	// +kubebuilder:validation:XValidation:rule="self.matches('[^0]')",message="must be the digest of a key, not a placeholder"
	// +optional
	KeyDigest string `json:"keyDigest,omitempty"`

	// expiresAt is the time from which the key is refused, in RFC 3339, for example 2027-01-01T00:00:00Z. Default: never.
	// ---
	// The pattern is stricter than the date-time format, which accepts values that Go cannot decode. One such object
	// would break every client that lists ApiKeys. hack/crdtimes adds a pattern to the times of a status.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// rotation says when the key is replaced by a new one. Default: only over HTTP.
	// +kubebuilder:default={}
	// +optional
	Rotation Rotation `json:"rotation,omitzero"`
}

// RotationStatus describes one rotation.
type RotationStatus struct {
	// time is when the key was issued, in RFC 3339.
	// +required
	Time metav1.Time `json:"time,omitzero"`
	// cause is why the key was issued: Initial, Trigger, Schedule, API or Recovery.
	// +required
	Cause RotationCause `json:"cause,omitempty"`
	// actor is who asked for the key, as the console names its user; empty for other rotations.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Actor string `json:"actor,omitempty"`
}

// PreviousKey is an old key that is still valid.
type PreviousKey struct {
	// prefix is the first characters of the key, which may be shown to people. Empty for an externally generated key.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Prefix string `json:"prefix,omitempty"`
	// validUntil is the time from which the key is refused, in RFC 3339.
	// +required
	ValidUntil metav1.Time `json:"validUntil,omitzero"`
	// lastUsedTime is when the key was last used, in RFC 3339. A use is shown within minutes if the one before was more than ten minutes
	// earlier; absent: no use is known.
	// +optional
	LastUsedTime *metav1.Time `json:"lastUsedTime,omitempty"`
}

// ApiKeyStatus is the observed state of an ApiKey. It never contains a key or digest.
type ApiKeyStatus struct {
	// observedGeneration is the metadata.generation that this status describes; -1 until the operator has seen the object.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// keyID is the public part of the key. No rotation changes it.
	// +kubebuilder:validation:MaxLength=12
	// +optional
	KeyID string `json:"keyID,omitempty"`

	// prefix is the first characters of the current key, which identify it but do not reveal it. Empty for an externally
	// generated key, and while nobody has a key.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// keyGeneration counts the keys issued for this ApiKey, for any cause. It begins anew if the published record is lost.
	// +optional
	KeyGeneration int64 `json:"keyGeneration,omitempty"`

	// lastRotation says when and why the current key was issued.
	// +optional
	LastRotation *RotationStatus `json:"lastRotation,omitempty"`

	// previousKeys are the old keys that are still valid. The first is the newest, and the one that ends last.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	PreviousKeys []PreviousKey `json:"previousKeys,omitempty"`

	// nextRotationTime is the time of the next scheduled rotation, in RFC 3339; absent without a schedule.
	// +optional
	NextRotationTime *metav1.Time `json:"nextRotationTime,omitempty"`

	// lastUsedTime is when the current key was last used, in RFC 3339. A use is shown within minutes if the one before was more
	// than an hour earlier; absent: no use is known, and none in the last 90 days.
	// +optional
	LastUsedTime *metav1.Time `json:"lastUsedTime,omitempty"`

	// observedTrigger is the last spec.rotation.trigger that was handled.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	ObservedTrigger string `json:"observedTrigger,omitempty"`

	// conditions are Ready (always; True while the spec is in force), Usable (always: whether requests with the key are accepted),
	// Delivered (if keys are delivered in a Secret),
	// OldKeyInUse (once there is a key: whether a replaced key, which is still valid, is used; Unknown without evidence), and Reconciling, Stalled, KeyLost, ExpiringSoon and RotatingSoon (only while true).
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ApiKey is a key that servers of a merchant present to the payment API.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ak,categories=payments
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Usable",type=string,JSONPath=`.status.conditions[?(@.type=="Usable")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Mode",type=string,priority=1,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Merchant",type=string,JSONPath=`.spec.merchantRef.name`
// +kubebuilder:printcolumn:name="Prefix",type=string,JSONPath=`.status.prefix`
// +kubebuilder:printcolumn:name="Generation",type=integer,JSONPath=`.status.keyGeneration`
// +kubebuilder:printcolumn:name="Rotated",type=date,JSONPath=`.status.lastRotation.time`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Last used",type=date,priority=1,JSONPath=`.status.lastUsedTime`
// +kubebuilder:printcolumn:name="Overlap until",type=string,priority=1,JSONPath=`.status.previousKeys[0].validUntil`
// +kubebuilder:printcolumn:name="Old key in use",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="OldKeyInUse")].status`
// +kubebuilder:printcolumn:name="Old key used",type=date,priority=1,JSONPath=`.status.previousKeys[0].lastUsedTime`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be no more than 63 characters"
type ApiKey struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the desired state, written by the platform team.
	// +required
	Spec ApiKeySpec `json:"spec,omitzero"`

	// status is the observed state, written by the operator.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status ApiKeyStatus `json:"status,omitzero"`
}

// MaxOverlapSeconds is the longest time for which an old key can stay valid after a rotation: a year. The validation of
// spec.rotation.overlapSeconds has the same number.
const MaxOverlapSeconds = 31_536_000

// DeliverySecretName is the Secret that receives the key; empty: none does.
func (k *ApiKey) DeliverySecretName() string {
	delivery := k.Spec.Delivery
	switch {
	case k.Spec.KeyDigest != "", delivery != nil && delivery.Policy == DeliveryNone:
		return ""
	case delivery != nil && delivery.SecretName != "":
		return delivery.SecretName
	}
	return k.Name + "-key"
}

// LastUse is when the current key or an old one was last used, as the status has it; nil: no use is known.
func (k *ApiKey) LastUse() *metav1.Time {
	last := k.Status.LastUsedTime
	for i := range k.Status.PreviousKeys {
		if used := k.Status.PreviousKeys[i].LastUsedTime; last == nil || last.Before(used) {
			last = used
		}
	}
	return last
}

// ApiKeyList is a list of ApiKeys.
//
// +kubebuilder:object:root=true
type ApiKeyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ApiKey `json:"items"`
}
