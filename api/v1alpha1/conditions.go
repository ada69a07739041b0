package v1alpha1

// Condition types of Merchant and ApiKey, as kstatus reads them.
const (
	// ReadyCondition is True while the spec is in force: everything that it asks for is published. A key that the spec
	// disables is Ready once it is refused.
	ReadyCondition = "Ready"
	// UsableCondition of an ApiKey says whether requests with its key are accepted; Unknown if the operator cannot tell.
	UsableCondition = "Usable"
	// ReconcilingCondition is True while the operator works, retries or waits for another object; else absent.
	ReconcilingCondition = "Reconciling"
	// StalledCondition is True while a person must change something; else absent.
	StalledCondition = "Stalled"

	// DeliveredCondition of an ApiKey says whether a Secret holds the current key; absent if keys are not delivered.
	DeliveredCondition = "Delivered"
	// KeyLostCondition of an ApiKey is True after the published record of a live key was lost, until the next rotation;
	// else absent.
	KeyLostCondition = "KeyLost"
	// ExpiringSoonCondition of an ApiKey is True in the last week before spec.expiresAt; else absent.
	ExpiringSoonCondition = "ExpiringSoon"
	// RotatingSoonCondition of an ApiKey is True from a day before a scheduled rotation, or a tenth of the interval if
	// that is less; else absent.
	RotatingSoonCondition = "RotatingSoon"
	// OldKeyInUseCondition of an ApiKey says whether an old key, which a rotation has replaced and which is still accepted, is used; absent
	// until there is a key.
	OldKeyInUseCondition = "OldKeyInUse"

	// RateLimitReducedCondition of a Merchant is True while spec.rateLimit is above the platform's maximum.
	RateLimitReducedCondition = "RateLimitReduced"
	// WebhookHealthyCondition of a Merchant is False while its endpoint fails or is disabled, and True after a delivery.
	// The dispatcher writes it; absent: there is no webhook, or no event was sent yet.
	WebhookHealthyCondition = "WebhookHealthy"
)

// Reasons of Ready, of Reconciling or Stalled beside it, and of Usable. Events about them have the same reason.
const (
	// ReasonPublished: the object is published and up to date.
	ReasonPublished = "Published"
	// ReasonNotIssued: with delivery.policy None, nobody has a key yet. As a reason of Delivered: there is no key to deliver;
	// Ready says why.
	ReasonNotIssued = "NotIssued"
	// ReasonDisabled: spec.state of the ApiKey is Disabled.
	ReasonDisabled = "Disabled"
	// ReasonExpired: spec.expiresAt is past.
	ReasonExpired = "Expired"
	// ReasonMerchantSuspended: the Merchant of the ApiKey is Suspended.
	ReasonMerchantSuspended = "MerchantSuspended"
	// ReasonMerchantClosed: the Merchant of the ApiKey is Closed.
	ReasonMerchantClosed = "MerchantClosed"
	// ReasonMerchantNotFound: the Merchant of spec.merchantRef does not exist in the namespace (yet).
	ReasonMerchantNotFound = "MerchantNotFound"
	// ReasonMerchantNotPublished: replicas of the API do not know the Merchant of the ApiKey yet; its own condition Ready says why.
	ReasonMerchantNotPublished = "MerchantNotPublished"
	// ReasonSecretConflict: the Secret to write exists and belongs to another owner.
	ReasonSecretConflict = "SecretConflict"
	// ReasonKeyDigestUsed: spec.keyDigest is of a former key; set the digest of another key.
	ReasonKeyDigestUsed = "KeyDigestUsed"
	// ReasonKeyDigestClaimed: another ApiKey has claimed spec.keyDigest.
	ReasonKeyDigestClaimed = "KeyDigestClaimed"
	// ReasonTooManyKeyDigests: this ApiKey, or the deleted ones of its namespace, have claimed the maximum number of digests.
	ReasonTooManyKeyDigests = "TooManyKeyDigests"
	// ReasonRotationDeferred: the spec asked for rotations faster than they are made; the next one has a time.
	ReasonRotationDeferred = "RotationDeferred"
	// ReasonNewerVersion: a newer operator wrote the published object; this operator does not change it.
	ReasonNewerVersion = "NewerVersion"
	// ReasonStillAccepted: what only restricts could not be published, or what was deleted not be revoked. Keys work as before.
	ReasonStillAccepted = "StillAccepted"
	// ReasonTooManyDeleted: too many objects of the namespace were deleted, so that this deleted one keeps the operator's finalizer. It is
	// revoked and remembered. Or this one is new, and is not published.
	ReasonTooManyDeleted = "TooManyDeleted"
	// ReasonFailed: a call to the Kubernetes API failed; the operator retries.
	ReasonFailed = "Failed"
)

// Reasons of Delivered.
const (
	// ReasonDelivered: a Secret holds the current key.
	ReasonDelivered = "Delivered"
	// ReasonNotDelivered: the Secret was deleted or replaced, and the key cannot be shown again.
	ReasonNotDelivered = "NotDelivered"
	// ReasonRotatedOverHTTP: only the caller of the rotation has the current key.
	ReasonRotatedOverHTTP = "RotatedOverHTTP"
	// ReasonRetentionEnded: the Secret was deleted after delivery.retainSeconds.
	ReasonRetentionEnded = "RetentionEnded"
)

// ReasonPlatformMaximum of RateLimitReduced: the platform's maximum is published instead of spec.rateLimit.
const ReasonPlatformMaximum = "PlatformMaximum"

// Reasons of KeyLost.
const (
	// ReasonKeyReplaced: a new key replaced the lost one.
	ReasonKeyReplaced = "KeyReplaced"
	// ReasonKeyNotReplaced: no key could replace the lost one yet; Ready says why.
	ReasonKeyNotReplaced = "KeyNotReplaced"
)

// Reasons of OldKeyInUse.
const (
	// ReasonOldKeyUsed: an old key was used within two hours.
	ReasonOldKeyUsed = "OldKeyUsed"
	// ReasonOverlapEndsSoon: the same, and the old key is refused within an hour.
	ReasonOverlapEndsSoon = "OverlapEndsSoon"
	// ReasonOldKeyUnused: no old key was used within two hours.
	ReasonOldKeyUnused = "OldKeyUnused"
	// ReasonNoOldKey: no old key is accepted.
	ReasonNoOldKey = "NoOldKey"
	// ReasonUsesUnknown: nobody knows whether an old key was used; the message says why.
	ReasonUsesUnknown = "UsesUnknown"
	// ReasonRotationPending: the current key is to be replaced, and was not yet.
	ReasonRotationPending = "RotationPending"
)

// Reasons of ExpiringSoon and RotatingSoon.
const (
	// ReasonExpiresAt: spec.expiresAt is near.
	ReasonExpiresAt = "ExpiresAt"
	// ReasonSchedule: a scheduled rotation is near.
	ReasonSchedule = "Schedule"
)

// Finalizer keeps a Merchant or ApiKey until its published objects are deleted. Owner references cannot do that,
// because they do not work across namespaces.
const Finalizer = "merchant-operator.io/published"
