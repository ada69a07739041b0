package v1alpha1

// Condition types of Merchant and ApiKey, as kstatus reads them.
const (
	// ReadyCondition is True when everything in the spec is published to the data plane.
	ReadyCondition = "Ready"
	// ReconcilingCondition is True while the operator works, retries or waits for another object; else absent.
	ReconcilingCondition = "Reconciling"
	// StalledCondition is True while a person must change something; else absent.
	StalledCondition = "Stalled"

	// ExpiringSoonCondition of an ApiKey is True from a week before spec.expiresAt; else absent.
	ExpiringSoonCondition = "ExpiringSoon"
	// RotatingSoonCondition of an ApiKey is True from a day before a scheduled rotation, or a tenth of the interval if
	// that is less; else absent.
	RotatingSoonCondition = "RotatingSoon"

	// WebhookHealthyCondition of a Merchant is False while its endpoint is disabled, and True after it was enabled
	// again. The dispatcher writes it; absent: there was never a problem.
	WebhookHealthyCondition = "WebhookHealthy"
)

// Reasons of conditions, and of the events about them.
const (
	// ReasonPublished: the object is published and up to date.
	ReasonPublished = "Published"
	// ReasonMerchantNotFound: the Merchant of spec.merchantRef does not exist in the namespace (yet).
	ReasonMerchantNotFound = "MerchantNotFound"
	// ReasonSecretConflict: the Secret to deliver to exists and belongs to another owner.
	ReasonSecretConflict = "SecretConflict"
	// ReasonKeyDigestUsed: spec.keyDigest is of a former key; set the digest of another key.
	ReasonKeyDigestUsed = "KeyDigestUsed"
	// ReasonKeyDigestClaimed: another ApiKey has claimed spec.keyDigest.
	ReasonKeyDigestClaimed = "KeyDigestClaimed"
	// ReasonTooManyKeyDigests: this ApiKey has claimed the maximum number of digests.
	ReasonTooManyKeyDigests = "TooManyKeyDigests"
	// ReasonNewerVersion: a newer operator wrote the published object; this operator does not change it.
	ReasonNewerVersion = "NewerVersion"
	// ReasonExpiresAt: spec.expiresAt is near or past.
	ReasonExpiresAt = "ExpiresAt"
	// ReasonSchedule: a scheduled rotation is near.
	ReasonSchedule = "Schedule"
	// ReasonFailed: a call to the Kubernetes API failed; the operator retries.
	ReasonFailed = "Failed"
)

// Finalizer keeps a Merchant or ApiKey until its published objects are deleted. Owner references cannot do that,
// because they do not work across namespaces.
const Finalizer = "merchant-operator.io/published"
