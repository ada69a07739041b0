package merchants

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// sign brings the published signing secret in line with the plan. It is a compare-and-swap, as for a
// key; who loses it has published nothing.
func (r *Reconciler) sign(ctx context.Context, f *facts, p plan) error {
	if p.sign == withdrawSigning {
		return r.withdrawSigning(ctx, f)
	}
	record := p.signed()
	secret, err := published.EncodeWebhook(f.namespace, record)
	if err == nil {
		err = subject.SwapSecret(ctx, r.Client, f.signing, secret)
	}
	if err != nil {
		return fmt.Errorf("publish the signing secret %s: %w", published.WebhookName(record.MerchantID), err)
	}
	f.signing, f.record = secret, &record
	logf.FromContext(ctx).Info("published the signing secret", "secret", client.ObjectKeyFromObject(secret).Name, "why", string(p.sign))
	r.tellSigning(p)
	return nil
}

func (r *Reconciler) tellSigning(p plan) {
	switch p.sign {
	case issueSigning:
		r.tell(p.merchant, reasonSigningIssued, actionSign, "Made a signing secret for the webhook")
	case reissueSigning:
		r.warn(p.merchant, reasonSigningLost, actionSign,
			"The published signing secret of the webhook was lost or cannot be read. Events are signed with a new one only: take it from Secret %s", p.targetName())
	case rotateSigning:
		r.tell(p.merchant, reasonSigningRotated, actionSign,
			"Made a new signing secret for the webhook; the old one signs beside it for %s", published.SigningOverlap)
	case keepSigning, tidySigning, withdrawSigning: // nothing a person waits for
	}
}
