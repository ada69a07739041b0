package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ApiKeyState says whether a key is accepted.
// +kubebuilder:validation:Enum=Active;Disabled
type ApiKeyState string

// States of a key. A Disabled key gets the same 401 as an unknown one.
const (
	ApiKeyActive   ApiKeyState = "Active"
	ApiKeyDisabled ApiKeyState = "Disabled"
)

// RotationCause says who asked for a rotation.
// +kubebuilder:validation:Enum=Initial;Trigger;Schedule;API
type RotationCause string

// Causes of a rotation.
const (
	// RotationInitial is a key's first issue to its merchant, and the issue of another one because
	// what was published of it is lost.
	RotationInitial RotationCause = "Initial"
	// RotationTrigger is a change of spec.rotation.trigger or of spec.keyDigest.
	RotationTrigger RotationCause = "Trigger"
	// RotationSchedule is spec.rotation.everySeconds elapsed.
	RotationSchedule RotationCause = "Schedule"
	// RotationAPI is POST /api/v1/keys/rotate.
	RotationAPI RotationCause = "API"
)

// MerchantReference names a Merchant in the ApiKey's own namespace.
type MerchantReference struct {
	// name of the Merchant.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name,omitempty"`
}

// Delivery says where the plaintext of a generated key goes.
type Delivery struct {
	// secretName is the Secret beside the ApiKey that receives the key, with the data keys
	// apiKey, keyID and prefix. Absent: the ApiKey's name followed by "-key". A change moves the key.
	// A Secret of that name which is not this ApiKey's is never touched.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// retainSeconds is how long the delivered Secret stays, in seconds since its key was issued;
	// 0: for good.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:default=0
	// +optional
	RetainSeconds *int32 `json:"retainSeconds,omitempty"`
}

// Rotation says when a key is replaced.
type Rotation struct {
	// trigger is opaque: each change of it is one rotation. A date reads well. A key made elsewhere
	// is not replaced by it, only by another keyDigest.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Trigger string `json:"trigger,omitempty"`

	// everySeconds is how old a key may become, in seconds; absent: no matter. It is replaced up to a
	// tenth of that time earlier, so that keys made together do not all change at once. A key made
	// elsewhere is not replaced by it.
	// +kubebuilder:validation:Minimum=300
	// +kubebuilder:validation:Maximum=315360000
	// +optional
	EverySeconds *int32 `json:"everySeconds,omitempty"`

	// overlapSeconds is how long the old key is accepted after a rotation by trigger or schedule,
	// in seconds; 0: dead at once. A rotation over HTTP never overlaps.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:default=86400
	// +optional
	OverlapSeconds *int32 `json:"overlapSeconds,omitempty"`
}

// ApiKeySpec is what the platform team decides about a key.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.delivery) && has(self.keyDigest))",fieldPath=".keyDigest",message="delivery and keyDigest exclude each other: a key made elsewhere is not delivered"
type ApiKeySpec struct {
	// merchantRef is the Merchant this key charges for. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="merchantRef is immutable; create another ApiKey instead"
	// +required
	MerchantRef MerchantReference `json:"merchantRef,omitzero"`

	// state says whether the key is accepted.
	// +kubebuilder:default=Active
	// +optional
	State ApiKeyState `json:"state,omitempty"`

	// delivery says where the plaintext goes. Absent, and without keyDigest: a Secret beside the
	// ApiKey with the ApiKey's name followed by "-key".
	// +optional
	Delivery *Delivery `json:"delivery,omitempty"`

	// keyDigest is the SHA-256 of a key made elsewhere, 64 lower-case hex digits; the plaintext then
	// never enters the cluster. Such a key has 32 to 256 visible ASCII characters.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:XValidation:rule="self.matches('[^0]')",message="must be the digest of a key, not a placeholder"
	// +optional
	KeyDigest string `json:"keyDigest,omitempty"`

	// expiresAt is the time from which the key is refused, RFC 3339 such as 2027-01-01T00:00:00Z;
	// absent: never.
	// ---
	// The pattern is stricter than the date-time format, which lets pass what Go cannot decode: one
	// such object in a list would blind every client that lists ApiKeys.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// rotation says when the key is replaced.
	// +kubebuilder:default={}
	// +optional
	Rotation Rotation `json:"rotation,omitzero"`
}

// RotationStatus is one rotation that happened.
type RotationStatus struct {
	// time the key was replaced, RFC 3339.
	// +required
	Time metav1.Time `json:"time,omitzero"`
	// cause of the rotation.
	// +required
	Cause RotationCause `json:"cause,omitempty"`
}

// ApiKeyStatus is what the operator has made of an ApiKey. It never holds key material.
type ApiKeyStatus struct {
	// observedGeneration is the metadata.generation this status speaks of; -1 before the first one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// keyID is the public part of the key; it stays the same through every rotation.
	// +kubebuilder:validation:MaxLength=12
	// +optional
	KeyID string `json:"keyID,omitempty"`

	// prefix is the leading part of the current key that may be shown to people.
	// Empty for a key made elsewhere.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// keyGeneration counts the rotations of this key, whatever caused them; it never falls.
	// +optional
	KeyGeneration int64 `json:"keyGeneration,omitempty"`

	// lastRotation is when and why the current key was issued.
	// +optional
	LastRotation *RotationStatus `json:"lastRotation,omitempty"`

	// nextRotationTime is when the schedule will rotate next, RFC 3339; absent: there is no schedule.
	// +optional
	NextRotationTime *metav1.Time `json:"nextRotationTime,omitempty"`

	// observedTrigger is the spec.rotation.trigger that was handled last.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	ObservedTrigger string `json:"observedTrigger,omitempty"`

	// conditions are Ready, and Reconciling or Stalled only while true.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ApiKey is a key a merchant's servers present to the payment API.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ak,categories=payments
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Merchant",type=string,JSONPath=`.spec.merchantRef.name`
// +kubebuilder:printcolumn:name="Prefix",type=string,JSONPath=`.status.prefix`
// +kubebuilder:printcolumn:name="Generation",type=integer,JSONPath=`.status.keyGeneration`
// +kubebuilder:printcolumn:name="Rotated",type=date,JSONPath=`.status.lastRotation.time`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must be no more than 63 characters"
type ApiKey struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the platform team decides about the key.
	// +required
	Spec ApiKeySpec `json:"spec,omitzero"`

	// status is what the operator has made of it.
	// +kubebuilder:default:={"observedGeneration":-1}
	// +optional
	Status ApiKeyStatus `json:"status,omitzero"`
}

// ApiKeyList is a list of ApiKeys.
//
// +kubebuilder:object:root=true
type ApiKeyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ApiKey `json:"items"`
}
