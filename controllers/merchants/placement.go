package merchants

import (
	"bytes"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
)

// dataSecret is the data key of a delivered signing secret.
const dataSecret = "secret"

// needsDelivery reports whether the merchant's copy is to be written. Unlike a key, a signing secret
// can be delivered again at any time: it is published.
func needsDelivery(f facts, sign signing) bool {
	switch {
	case f.targetName() == "" || f.targetTaken || f.newerSigning:
		return false
	case f.target == nil || sign == issueSigning || sign == reissueSigning || sign == rotateSigning:
		return true
	default:
		return f.target.Labels[deliveries.Label] != deliveries.LabelWebhook ||
			!sameData(f.target.Data, deliveredData(*f.record))
	}
}

// deliveredData is all that is in the merchant's copy.
func deliveredData(record published.WebhookRecord) map[string][]byte {
	return map[string][]byte{dataSecret: []byte(record.Current.Secret.Reveal())}
}

func sameData(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// removal is a delivered Secret to be deleted, and what people are told.
type removal struct {
	metav1.ObjectMeta
	why string
}

// removals are the delivered Secrets that no longer serve: there is no webhook, or the secret is
// delivered under another name by now.
func removals(f facts) []removal {
	var out []removal
	for _, secret := range f.delivered {
		switch {
		case f.targetName() == "":
			out = append(out, removal{secret, "the Merchant has no webhook"})
		case secret.Name != f.targetName() && f.target != nil:
			out = append(out, removal{secret, "the signing secret is delivered in Secret " + f.targetName()})
		}
	}
	return out
}
