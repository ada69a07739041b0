package apikeys

import (
	"context"
)

// move delivers the key in force under the name that the spec gives now. The Secret of the old name
// is deleted by the next pass, which finds it superfluous, so a pass that ends in between loses
// nothing. What is not the key in force is not passed on.
func (r *Reconciler) move(ctx context.Context, p plan) error {
	key, err := r.readKey(ctx, p.facts, p.move.Name)
	if err != nil {
		return err
	}
	if !key.Digest().Equal(p.record.Current.Digest) {
		r.warn(p.apiKey, reasonNotDelivered, actionDeliver,
			"Secret %s does not hold the key in force, so it cannot be delivered as %s: change rotation.trigger for a new one",
			p.move.Name, p.target())
		return r.clear(ctx, plan{facts: p.facts, remove: []removal{{*p.move, reasonStaleDelivery, "it does not hold the key in force"}}})
	}
	return r.deliver(ctx, p.facts, key, p.record.Generation)
}
