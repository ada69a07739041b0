package merchants

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// plan is what is to be done about a Merchant.
type plan struct {
	facts
	outcome conditions.Outcome
	// publish is the ConfigMap to be written; nil: it is there as it should be.
	publish *corev1.ConfigMap
	// sign says what is to be done about the published signing secret.
	sign signingAction
	// deliver says that the merchant's copy is to be written.
	deliver bool
	// remove are delivered Secrets that are of no use any more.
	remove []removal
}

// idle reports whether nothing is to be done.
func (p *plan) idle() bool {
	return p.publish == nil && p.sign == keepSigning && !p.deliver && len(p.remove) == 0
}

// decide is pure. Its error says that the Merchant has no published form.
func decide(f facts) (*plan, error) {
	p := &plan{facts: f, outcome: outcomeFor(f)}
	want, err := published.EncodeMerchant(f.namespace, published.NewMerchantRecord(f.merchant))
	if err != nil {
		return p, fmt.Errorf("publish the Merchant: %w", err)
	}
	if f.published == nil || !f.newer && !sameContent(f.published, want) {
		p.publish = want
	}
	p.sign = signingFor(f)
	p.deliver = needsDelivery(f, p.sign)
	p.remove = removals(f)
	return p, nil
}

// sameContent reports whether the ConfigMap holds what is wanted and nothing else. Other labels do not count.
func sameContent(got, want *corev1.ConfigMap) bool {
	return got.Labels[published.Label] == want.Labels[published.Label] &&
		maps.Equal(got.Data, want.Data) && len(got.BinaryData) == 0
}

// outcomeFor says what prevents the Merchant from being Ready, if anything does. What a newer operator wrote stays. A
// taken name prevents nothing but the delivery of the merchant's copy.
func outcomeFor(f facts) conditions.Outcome {
	if f.newer || f.newerSigning {
		return conditions.Stalled(v1alpha1.ReasonNewerVersion,
			"A newer version of the operator wrote a published object of this Merchant; finish the upgrade of the operator")
	}
	if f.targetTaken {
		return conditions.Stalled(v1alpha1.ReasonSecretConflict,
			"Secret %s %s; choose another spec.webhook.secretName. Until then events are signed with a secret that the merchant cannot read",
			f.targetName(), f.targetHolder)
	}
	return conditions.Ready("Merchant is published and up to date")
}

// conflictRecheck is how often a taken name is checked again: nothing reports that somebody else's Secret is gone.
const conflictRecheck = time.Minute

// nextCheck is the time until there will be something to do; 0: never.
func nextCheck(f facts, outcome conditions.Outcome) time.Duration {
	var recheck time.Time
	if outcome.Reason == v1alpha1.ReasonSecretConflict {
		recheck = f.now.Add(conflictRecheck)
	}
	return reconciler.Until(f.now, overlapEnd(f), recheck)
}
