package merchants

import (
	"bytes"
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
)

// dataSecret is the data key of a delivered signing secret.
const dataSecret = "secret"

// needsDelivery reports whether the merchant's copy must be written. Unlike a key, a published signing secret can be
// delivered again at any time.
func needsDelivery(f facts, sign signingAction) bool {
	switch {
	case f.targetName() == "" || f.targetTaken || !f.targetEnding.IsZero() || f.newerSigning:
		return false
	case f.target == nil || sign == issueSigning || sign == reissueSigning || sign == rotateSigning:
		return true
	default:
		return f.target.Labels[tenantsecret.Label] != tenantsecret.LabelWebhook ||
			!sameData(f.target.Data, deliveredData(*f.record))
	}
}

// deliveredData is the content of the merchant's copy.
func deliveredData(record published.WebhookRecord) map[string][]byte {
	return map[string][]byte{dataSecret: []byte(record.Current.Secret.Reveal())}
}

func sameData(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// removal is a delivered Secret to delete, with the reason for the event.
type removal struct {
	metav1.ObjectMeta
	why string
}

// removals returns the delivered Secrets to delete: there is no webhook, or the secret is now in another Secret.
func removals(f facts) []removal {
	var out []removal
	for _, secret := range f.delivered {
		switch {
		case f.targetName() == "":
			out = append(out, removal{secret, "the Merchant has no webhook"})
		case secret.Name != f.targetName() && f.target != nil:
			out = append(out, removal{secret, "the signing secret is now in Secret " + f.targetName()})
		}
	}
	return out
}

// deliver writes the merchant's copy of the current secret.
func (r *Reconciler) deliver(ctx context.Context, f *facts) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.merchant.Namespace, Name: f.targetName()},
		Type:       corev1.SecretTypeOpaque,
	}
	if f.target != nil {
		secret = f.target.DeepCopy()
	}
	secret.Data, secret.Type, secret.Immutable = deliveredData(*f.record), corev1.SecretTypeOpaque, nil
	if err := r.Secrets.Deliver(ctx, f.merchant, tenantsecret.LabelWebhook, secret); err != nil {
		return err
	}
	f.target = secret
	r.Emit(f.merchant, reasonDelivered, actionDeliver, "Wrote the signing secret of the webhook to Secret %s", secret.Name)
	return nil
}

// removeDelivered deletes delivered Secrets, if they have not changed since the decision.
func (r *Reconciler) removeDelivered(ctx context.Context, p *plan) error {
	for _, secret := range p.remove {
		preconditions := client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}
		if err := r.Secrets.Delete(ctx, &secret.ObjectMeta, preconditions); err != nil {
			return err
		}
		r.Emit(p.merchant, reasonDeliveryRemoved, actionDeliver, "Deleted Secret %s: %s", secret.Name, secret.why)
	}
	return nil
}
