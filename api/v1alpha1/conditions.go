package v1alpha1

// Condition types of Merchant and ApiKey, as kstatus reads them. Ready is always present once an
// object was handled; Reconciling and Stalled are present only while they are true.
const (
	// ReadyCondition is True when the data plane has been told everything the spec asks for.
	ReadyCondition = "Ready"
	// ReconcilingCondition is True while the operator still works, or waits, towards Ready.
	ReconcilingCondition = "Reconciling"
	// StalledCondition is True when nothing will happen until a person changes something.
	StalledCondition = "Stalled"

	// ExpiringSoonCondition of an ApiKey is True from a week before spec.expiresAt on, else absent.
	ExpiringSoonCondition = "ExpiringSoon"
	// RotatingSoonCondition of an ApiKey is True from a day before a scheduled rotation on, or a tenth
	// of the interval if that is less; else absent.
	RotatingSoonCondition = "RotatingSoon"

	// WebhookHealthyCondition of a Merchant is False while no events are sent to its endpoint, and True
	// again once they are. The dispatcher writes it; absent: nothing was ever wrong.
	WebhookHealthyCondition = "WebhookHealthy"
)

// Condition reasons, which are the reasons of the matching events as well.
const (
	// ReasonPublished: the object is published and up to date.
	ReasonPublished = "Published"
	// ReasonMerchantNotFound: the ApiKey's merchantRef names no Merchant in its namespace (yet).
	ReasonMerchantNotFound = "MerchantNotFound"
	// ReasonSecretConflict: delivery.secretName is taken by a Secret that is not this ApiKey's.
	ReasonSecretConflict = "SecretConflict"
	// ReasonKeyDigestUsed: spec.keyDigest is of a key that must not come back; a new one is needed.
	ReasonKeyDigestUsed = "KeyDigestUsed"
	// ReasonKeyDigestClaimed: spec.keyDigest is claimed by another ApiKey.
	ReasonKeyDigestClaimed = "KeyDigestClaimed"
	// ReasonTooManyKeyDigests: spec.keyDigest was changed too often.
	ReasonTooManyKeyDigests = "TooManyKeyDigests"
	// ReasonNewerVersion: a published object was written by a newer operator; it is left as it is.
	ReasonNewerVersion = "NewerVersion"
	// ReasonExpiresAt: spec.expiresAt is near, or over.
	ReasonExpiresAt = "ExpiresAt"
	// ReasonSchedule: spec.rotation.everySeconds is nearly over.
	ReasonSchedule = "Schedule"
	// ReasonFailed: a call to the Kubernetes API failed; it is tried again.
	ReasonFailed = "Failed"
)

// Finalizer keeps a Merchant or ApiKey until its published objects are gone, for owner references
// cannot reach from a tenant's namespace into the credentials namespace.
const Finalizer = "merchant-operator.io/published"
