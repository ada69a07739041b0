package merchants

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

// signingAction is what to do with the published signing secret.
type signingAction string

const (
	keepSigning     signingAction = ""         // it is as it should be
	issueSigning    signingAction = "issue"    // there is none
	reissueSigning  signingAction = "reissue"  // there was one, and nobody can know what it was
	rotateSigning   signingAction = "rotate"   // the trigger changed
	repairSigning   signingAction = "repair"   // an overlap ended, or somebody edited what is around it
	withdrawSigning signingAction = "withdraw" // there was no webhook for published.WebhookGrace
)

// signingFor returns the first action that applies. A usable record is always kept: with a new secret, events would
// look forged until the merchant has read it.
func signingFor(f facts) signingAction {
	switch {
	case f.newerSigning:
		return keepSigning
	case f.targetName() == "" && f.signing != nil && !webhookToPublish(f).Awaited():
		return withdrawSigning
	case f.targetName() == "": // a removed webhook that comes back has the same secret
		return keepSigning
	case f.record == nil && issuedBefore(f):
		return reissueSigning
	case f.record == nil:
		return issueSigning
	case rotationWanted(f):
		return rotateSigning
	case !signingUpToDate(f):
		return repairSigning
	default:
		return keepSigning
	}
}

// issuedBefore reports whether there is a trace of an earlier signing secret.
func issuedBefore(f facts) bool {
	return f.signing != nil || f.target != nil || len(f.delivered) > 0 || f.merchant.Status.WebhookSecretName != ""
}

// triggerChanged: any change is one rotation.
func triggerChanged(f facts) bool {
	return f.record != nil && f.merchant.Spec.Webhook != nil && f.merchant.Spec.Webhook.RotationTrigger != f.record.HandledTrigger
}

// rotationWanted: the rotation waits while the new secret cannot be delivered, because the merchant could not verify events after the
// overlap.
func rotationWanted(f facts) bool {
	return triggerChanged(f) && !f.targetTaken && triggerLimit(f).At.IsZero()
}

// triggerLimit is the limit on rotations of the signing secret.
func triggerLimit(f facts) reconciler.TriggerLimit {
	if f.record == nil {
		return reconciler.TriggerLimit{}
	}
	return reconciler.NewTriggerLimit(f.record.TriggerTAT, f.now)
}

// signingUpToDate reports whether the published Secret has the desired record.
func signingUpToDate(f facts) bool {
	want, err := published.EncodeWebhook(f.namespace, asSpecified(f))
	return err == nil && f.signing.Labels[published.Label] == published.LabelWebhook &&
		sameData(f.signing.Data, want.Data)
}

// asSpecified returns the record with everything that follows from the Merchant and the time.
func asSpecified(f facts) published.WebhookRecord {
	record := *f.record
	record.Source = published.Source{Namespace: f.merchant.Namespace, Name: f.merchant.Name, UID: f.merchant.UID}
	if !f.clockWrong {
		record.Retired = record.RetiredAt(f.now.Add(-reconciler.EndedMargin))
	}
	return record
}

// signingRecord returns the record of the plan.
func (p *plan) signingRecord() published.WebhookRecord {
	switch p.sign {
	case issueSigning, reissueSigning:
		return published.NewWebhookRecord(p.merchant, p.now)
	case rotateSigning:
		record := asSpecified(p.facts)
		record.TriggerTAT = triggerLimit(p.facts).TAT
		return record.Rotated(p.merchant.Spec.Webhook.RotationTrigger, p.now)
	default:
		return asSpecified(p.facts)
	}
}

// cleanupTime is when the first retired secret, which signs no more, leaves the record; zero: there is none.
func cleanupTime(f facts) time.Time {
	var first time.Time
	if f.record != nil {
		for _, retired := range f.record.Retired {
			if at := retired.ValidUntil.Add(reconciler.EndedMargin); first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	return first
}

// sign writes the published signing secret of the plan, by compare-and-swap. The loser of a race has published
// nothing.
func (r *Reconciler) sign(ctx context.Context, f *facts, p *plan) error {
	switch p.sign {
	case keepSigning:
		return nil
	case withdrawSigning:
		return r.withdrawSigning(ctx, f)
	case issueSigning, reissueSigning, rotateSigning, repairSigning:
	}
	record := p.signingRecord()
	secret, err := published.EncodeWebhook(p.namespace, record)
	if err == nil {
		r.auditSigning(ctx, p.sign, record)
		err = writes.Replace(ctx, r.Client, p.signing, secret)
	}
	if err != nil {
		return fmt.Errorf("publish the signing secret %s: %w", published.WebhookName(record.MerchantID), err)
	}
	f.signing, f.record = secret, &record
	logf.FromContext(ctx).Info("published the signing secret", "secret", client.ObjectKeyFromObject(secret).Name, "why", string(p.sign))
	r.emitSigning(p)
	return nil
}

// auditSigning writes the line about a signing secret that is about to be published, so that an interruption leaves none without a line.
func (r *Reconciler) auditSigning(ctx context.Context, action signingAction, record published.WebhookRecord) {
	var by auditlog.By
	var cause v1alpha1.RotationCause
	switch action {
	case issueSigning:
		by, cause = auditlog.Spec, v1alpha1.RotationInitial
	case reissueSigning:
		by, cause = auditlog.Service, v1alpha1.RotationRecovery
	case rotateSigning:
		by, cause = auditlog.Spec, v1alpha1.RotationTrigger
	case keepSigning, repairSigning, withdrawSigning:
		return
	}
	line := auditlog.AboutSigning(record, by)
	line.Cause, line.ChangedAt = string(cause), record.Current.CreatedAt
	r.Audit.Write(ctx, line)
}

func (r *Reconciler) emitSigning(p *plan) {
	switch p.sign {
	case issueSigning:
		r.Emit(p.merchant, reasonSigningIssued, actionSign, "Created the signing secret of the webhook")
	case reissueSigning:
		r.Warn(p.merchant, reasonSigningLost, actionSign,
			"The published signing secret of the webhook was lost or cannot be read. Events are signed with a new one only: take it from Secret %s", p.targetName())
	case rotateSigning:
		r.Emit(p.merchant, reasonSigningRotated, actionSign,
			"Rotated the signing secret of the webhook; events are also signed with the old one for %s", published.SigningOverlap)
	case keepSigning, repairSigning, withdrawSigning: // nothing a person waits for
	}
}

// withdrawSigning deletes the published signing secret, so that no more events are signed.
func (r *Reconciler) withdrawSigning(ctx context.Context, f *facts) error {
	if f.signing == nil {
		return nil
	}
	if record, err := published.DecodeWebhookEnvelope(f.signing); err == nil {
		r.Audit.Write(ctx, auditlog.SigningWithdrawn(record))
	}
	if err := r.Secrets.Delete(ctx, f.signing, client.Preconditions{UID: &f.signing.UID}); err != nil {
		return fmt.Errorf("delete Secret %s: %w", published.WebhookName(published.ID(f.merchant.UID)), err)
	}
	f.signing, f.record = nil, nil
	return nil
}
