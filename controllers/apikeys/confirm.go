package apikeys

import (
	"context"

	"github.com/merchant-operator/merchant-operator/controllers/deliveries"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// confirm reads the facts again from the API server, also what no cache holds: who has the name the
// key is to be delivered under.
func (r *Reconciler) confirm(ctx context.Context, seen facts) (facts, error) {
	apiKey, err := subject.Confirm(ctx, r.Live, seen.apiKey)
	if err != nil {
		return seen, err
	}
	f, err := r.read(ctx, r.Live, apiKey)
	if err != nil {
		return f, err
	}
	for _, name := range f.secretNames(seen.delivered) {
		secret, err := r.Secrets.Look(ctx, apiKey.Namespace, name)
		switch {
		case err != nil:
			return f, err
		case secret == nil:
		case deliveries.OwnedBy(secret, apiKey.UID):
			f.delivered = append(f.delivered, delivered{secret.ObjectMeta})
		case name == f.target():
			f.targetTaken = true
		}
	}
	return f, nil
}
