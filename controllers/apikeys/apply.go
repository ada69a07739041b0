package apikeys

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// apply does what the plan says and returns the facts as they are then.
func (r *Reconciler) apply(ctx context.Context, p plan) (facts, error) {
	f := p.facts
	if err := r.writeClaims(ctx, f, p.claims); err != nil {
		return f, err
	}
	if p.newKey != nil {
		record, err := r.issue(ctx, p)
		if err != nil {
			return f, err
		}
		f.record = &record
		return f, nil
	}
	if p.repair != nil {
		if err := r.publish(ctx, f.published, *p.repair); err != nil {
			return f, err
		}
		f.record = p.repair
		r.tell(f.apiKey, v1alpha1.ReasonPublished, actionPublish, "Told the data plane about the key, state %s", f.record.State)
	}
	for _, note := range p.notes {
		r.warn(f.apiKey, note.reason, actionDeliver, "%s", note.text)
	}
	if p.move != nil {
		if err := r.move(ctx, p); err != nil {
			return f, err
		}
	}
	return f, r.clear(ctx, p)
}

// clear deletes delivered Secrets, if they are still as they were when that was decided.
func (r *Reconciler) clear(ctx context.Context, p plan) error {
	for _, d := range p.remove {
		if err := r.Secrets.Delete(ctx, &d.ObjectMeta, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion}); err != nil {
			return err
		}
		r.tell(p.apiKey, d.reason, actionDeliver, "Removed Secret %s: %s", d.Name, d.why)
	}
	return nil
}
