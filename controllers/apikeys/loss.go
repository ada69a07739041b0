package apikeys

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// lost reports whether there was a key without a usable published record now.
func lost(f facts) bool {
	if f.recordOfAnother() {
		return f.apiKey.Status.KeyGeneration > 0
	}
	_, known := f.ownRecord()
	return !known && !f.newer && nextGeneration(f) > 1
}

// keyLost returns the condition KeyLost; nil: absent. It is derived from the record, so a lost status does not end it.
// An externally generated key is published again, so it is not lost.
func keyLost(f facts) *metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.KeyLostCondition, Status: metav1.ConditionTrue}
	record, known := f.ownRecord()
	switch {
	case lost(f):
		condition.Reason = v1alpha1.ReasonKeyNotReplaced
		condition.Message = "The published record of the key was lost, so the key gets 401. No key can replace it yet: see condition Ready"
	case known && record.LastRotation.Cause == v1alpha1.RotationRecovery && record.HandledDigest == nil:
		next := "Give the new key to the merchant; the next rotation ends this condition"
		if !record.Issued() {
			next = "Nobody has a key now: rotate it over HTTP, for example in the console"
		}
		condition.Reason = v1alpha1.ReasonKeyReplaced
		condition.Message = fmt.Sprintf("The published record was lost. All keys before generation %d get 401 since %s. %s",
			record.Generation, record.LastRotation.Time.UTC().Format(time.RFC3339), next)
	default:
		return nil
	}
	return &condition
}
