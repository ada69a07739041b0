package keys

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
)

// settled is how far the operator is with an ApiKey as it is now. A disabled key is settled once it is refused, any other once it is
// accepted, or is there to be issued.
func settled(key *v1alpha1.ApiKey) cluster.Progress {
	ready := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.ReadyCondition)
	usable := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.UsableCondition)
	if ready == nil || usable == nil || ready.ObservedGeneration != key.Generation {
		return cluster.Progress{State: cluster.Unseen}
	}
	isReady, accepted := ready.Status == metav1.ConditionTrue, usable.Status == metav1.ConditionTrue
	stalled := meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.StalledCondition)
	state := ready.Reason + ": " + ready.Message
	switch {
	case key.Spec.State == v1alpha1.ApiKeyDisabled: // what is in the way of a new key does not keep an old one alive
		return cluster.Progress{Done: usable.Status == metav1.ConditionFalse, State: state, Stalled: stalled}
	case isReady && key.DeliverySecretName() != "" && key.Status.ObservedTrigger != key.Spec.Rotation.Trigger:
		return cluster.Progress{State: "the key is not rotated yet"}
	}
	return cluster.Progress{Done: isReady && (accepted || ready.Reason == v1alpha1.ReasonNotIssued), State: state, Stalled: stalled || isReady && !accepted}
}

// Obstacle returns why a new key cannot be issued, or would not work, until a person changes something else.
func Obstacle(key *v1alpha1.ApiKey) (reason string, blocked bool) {
	ready := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.ReadyCondition)
	if ready == nil || ready.ObservedGeneration != key.Generation {
		return "", false
	}
	switch ready.Reason {
	case v1alpha1.ReasonMerchantNotFound, v1alpha1.ReasonExpired, v1alpha1.ReasonMerchantClosed:
		blocked = true
	default: // a new key of a disabled ApiKey, or of a suspended Merchant, works as soon as that ends
		blocked = meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.StalledCondition)
	}
	return ready.Reason + ": " + ready.Message, blocked
}

// issueAnother says how to get a key of another ApiKey.
func issueAnother(key *v1alpha1.ApiKey) string {
	return "Issue another key, for a merchant that exists: kubectl merchant keys issue NAME --merchant MERCHANT -n " + key.Namespace
}

// fixFirst says what to do about an obstacle.
func fixFirst(key *v1alpha1.ApiKey) string {
	if ready := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.ReadyCondition); ready != nil && ready.Reason == v1alpha1.ReasonMerchantNotFound {
		return issueAnother(key)
	}
	return "Change that first. All that there is to do: kubectl merchant status " + key.Spec.MerchantRef.Name + " -n " + key.Namespace
}
