package merchants

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/conditions"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
	"github.com/merchant-operator/merchant-operator/internal/allowlist"
)

// plan is what to do for a Merchant, because of the facts.
type plan struct {
	facts
	// publish is the ConfigMap to write; nil: it is up to date.
	publish *corev1.ConfigMap
	// webhook is the one to publish; nil: none.
	webhook *published.Webhook
	// sign is what to do with the published signing secret.
	sign signingAction
	// deliver is true if the merchant's copy must be written.
	deliver bool
	// remove are delivered Secrets to delete.
	remove []removal
}

// idle reports whether there is nothing to do.
func (p *plan) idle() bool {
	return p.publish == nil && p.sign == keepSigning && !p.deliver && len(p.remove) == 0
}

// decide is pure. It fails if the Merchant cannot be published.
func decide(f facts) (*plan, error) {
	p := &plan{facts: f}
	if !f.fullUntil.IsZero() {
		return p, nil
	}
	if f.ending != nil { // what is written now would go with it
		p.webhook = f.publishedWebhook
		return p, nil
	}
	record := published.NewMerchantRecord(f.merchant)
	p.webhook = webhookToPublish(f)
	record.Webhook = p.webhook
	record.RateLimit = f.rateLimit()
	record.Revocation = f.revocation
	want, err := published.EncodeMerchant(f.namespace, record)
	if err != nil {
		return p, fmt.Errorf("publish the Merchant: %w", err)
	}
	switch {
	case f.newer: // its envelope is all that an older operator changes
		p.publish = restrictedEnvelope(f.configMap, record)
		p.webhook = f.publishedWebhook
	case f.configMap == nil || !sameContent(f.configMap, want):
		p.publish = want
	}
	p.sign = signingFor(f)
	p.deliver = needsDelivery(f, p.sign)
	p.remove = removals(f)
	return p, nil
}

// restrictedConfigMap returns what is published with what only restricts the Merchant; nil: it has that, or opens nothing.
func restrictedConfigMap(configMap *corev1.ConfigMap, merchant *v1alpha1.Merchant) *corev1.ConfigMap {
	if configMap == nil || writes.Ending(configMap) {
		return nil
	}
	record, err := published.DecodeMerchant(configMap)
	if errors.Is(err, published.ErrNewerVersion) {
		return restrictedEnvelope(configMap, published.NewMerchantRecord(merchant))
	}
	if err != nil { // nobody accepts a key of a merchant that cannot be read
		return nil
	}
	want := restricted(record, merchant.Spec)
	if want.State == record.State && want.IPAllowlistMode == record.IPAllowlistMode && slices.Equal(want.IPAllowlist, record.IPAllowlist) {
		return nil
	}
	encoded, _ := published.EncodeMerchant(configMap.Namespace, want) // nil for a spec that is invalid, which decide reports
	return encoded
}

// restricted returns the record with what only restricts the Merchant. An allowlist that is only reported refuses nobody.
func restricted(record published.MerchantRecord, spec v1alpha1.MerchantSpec) published.MerchantRecord {
	if spec.State != v1alpha1.MerchantActive {
		record.State = spec.State
	}
	if spec.IPAllowlistMode == v1alpha1.IPAllowlistReport {
		return record
	}
	before := record.IPAllowlist
	if record.IPAllowlistMode == v1alpha1.IPAllowlistReport {
		before, record.IPAllowlistMode = nil, v1alpha1.IPAllowlistEnforce
	}
	record.IPAllowlist = allowlist.Narrower(before, spec.IPAllowlist)
	return record
}

// restrictedEnvelope returns the published merchant of a newer version, revoked while the spec is not active, and with an allowlist as narrow as the
// spec's; nil: it is so already, or has no envelope. It widens nothing: an older operator cannot know why the newer one has narrowed.
func restrictedEnvelope(configMap *corev1.ConfigMap, spec published.MerchantRecord) *corev1.ConfigMap {
	record, err := published.DecodeMerchantEnvelope(configMap)
	if err != nil {
		return nil
	}
	want := published.MerchantRestriction{
		Revoked: spec.State != v1alpha1.MerchantActive, Mode: record.IPAllowlistMode,
		IPAllowlist: allowlist.Narrower(record.IPAllowlist, spec.IPAllowlist),
	}
	if spec.IPAllowlistMode != v1alpha1.IPAllowlistReport {
		want.Mode = v1alpha1.IPAllowlistEnforce
	}
	restricted, _ := published.RestrictMerchant(configMap, want) // the envelope is readable
	return restricted
}

// sameContent reports whether the ConfigMap has exactly the desired content. Other labels do not matter.
func sameContent(got, want *corev1.ConfigMap) bool {
	return got.Labels[published.Label] == want.Labels[published.Label] &&
		maps.Equal(got.Data, want.Data) && len(got.BinaryData) == 0
}

// outcomeFor returns the first problem, or Ready. A taken name prevents only the delivery of the merchant's copy.
func outcomeFor(f facts) conditions.Outcome {
	if f.newer || f.newerSigning {
		return conditions.Stalled(v1alpha1.ReasonNewerVersion,
			"A newer version of the operator wrote a published object of this Merchant; finish the upgrade of the operator")
	}
	if !f.fullUntil.IsZero() {
		return reconciler.Full("Merchant", f.fullUntil)
	}
	if f.ending != nil {
		kind := "Secret "
		if _, ok := f.ending.(*corev1.ConfigMap); ok {
			kind = "ConfigMap "
		}
		return tenantsecret.Ending(kind+f.ending.GetName()+" of the credentials namespace", "", f.ending.GetDeletionTimestamp().Time, f.now)
	}
	if f.revocation.Revoked {
		return conditions.Stalled(v1alpha1.ReasonNewerVersion,
			"A newer version of the operator revoked the Merchant, whose keys get 403; finish the upgrade of the operator")
	}
	if f.targetTaken {
		return conditions.Stalled(v1alpha1.ReasonSecretConflict,
			"Secret %s %s; choose another spec.webhook.secretName. Until then events are signed with a secret that the merchant cannot read",
			f.targetName(), f.targetHolder)
	}
	if !f.targetEnding.IsZero() {
		return tenantsecret.Ending("Secret "+f.targetName(), ", or choose another spec.webhook.secretName", f.targetEnding, f.now)
	}
	if limit := triggerLimit(f); triggerChanged(f) && !limit.At.IsZero() {
		return limit.Outcome("The signing secret works and")
	}
	return conditions.Ready("Merchant is published and up to date")
}

// conflictRecheck is how often a taken name is checked again, because no watch reports when another owner's Secret is
// deleted.
const conflictRecheck = time.Minute

// nextCheck returns the time until the next check is due; 0: never.
func nextCheck(f facts, outcome conditions.Outcome) time.Duration {
	var recheck time.Time
	if outcome.Reason == v1alpha1.ReasonSecretConflict {
		recheck = f.now.Add(conflictRecheck)
	}
	if outcome.Reason == v1alpha1.ReasonTooManyDeleted {
		recheck = f.now.Add(reconciler.HeldRecheck)
	}
	return reconciler.Until(f.now, f.fullUntil, cleanupTime(f), graceEnd(f), recheck, triggerLimit(f).At,
		reconciler.Recheck(f.now, f.clockWrong, cleanupTime(f), graceEnd(f)))
}
