package reconciler

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Kind has the steps of a reconciliation that differ between Merchants and ApiKeys. F are the facts about one object.
// Driver calls them, and reports no failure of a lost race.
type Kind[O client.Object, F any] interface {
	// ReadPublished reads what decides whether a restriction is due. From the API server it reads the published object
	// first, and then the object itself: a write replaces the version that was read, so a process that is frozen in
	// between publishes nothing of a spec that is older than what another operator has published meanwhile.
	ReadPublished(ctx context.Context, from Source, object O) (F, error)
	// Restriction returns the write that only restricts what is published; nil: none is due. Of a record of a newer version it writes the envelope alone,
	// and there it also takes back what an operator of this version has restricted.
	Restriction(facts F) func(context.Context) error
	// ReportUnrestricted says that a restriction is not in force.
	ReportUnrestricted(ctx context.Context, facts F, failure error) error

	// Update publishes and delivers what the object specifies, and returns the facts as they are then, also if it fails.
	// finalizerAdded: this reconciliation has added the finalizer, as to a new object.
	Update(ctx context.Context, cached F, finalizerAdded bool) (F, error)
	// Report emits events and writes the status. It returns the time until the next check is due; 0: never.
	Report(ctx context.Context, facts F, failure error) (time.Duration, error)

	// Revoke ends what is published of a deleted object, remembers it in a tombstone, and returns the names of the
	// Secrets that may have been delivered.
	Revoke(ctx context.Context, object O) (delivered []string, err error)
	// ReportUnrevoked says what a deletion waits for.
	ReportUnrevoked(ctx context.Context, object O, failure error) error
	// ReportHeld says that a deleted object keeps its finalizer: see Release.
	ReportHeld(ctx context.Context, object O) error
}

// Driver reconciles the objects of one kind: it runs the steps in the order that is the same for all kinds.
type Driver[O client.Object, F any] struct {
	*Base
	Kind      Kind[O, F]
	Tombstone published.TombstoneKind
}

// Reconcile restricts what is published, updates the rest, and reports it. Nothing that a tenant can make fail, such as a
// delivery, a quota, an admission policy or the finalizer, delays what only restricts.
func (d Driver[O, F]) Reconcile(ctx context.Context, object O) (reconcile.Result, error) {
	if !object.GetDeletionTimestamp().IsZero() {
		return d.withdraw(ctx, object)
	}
	cached, due, err := d.restrict(ctx, object)
	if due && err != nil && !Superseded(err) {
		err = errors.Join(err, d.Kind.ReportUnrestricted(ctx, cached, err))
	}
	if due || err != nil {
		return again(err)
	}
	if wait := d.Wait(object); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	// A finalizer that cannot be added delays nothing, such as a key to disable: a deletion is noticed without it.
	added, unfinalized := d.AddFinalizer(ctx, object)
	facts, err := d.Kind.Update(ctx, cached, added)
	if Superseded(err) {
		return d.Finish(object, 0, err)
	}
	failure := err
	if !Superseded(unfinalized) {
		failure = errors.Join(err, unfinalized)
	}
	next, unreported := d.Kind.Report(ctx, facts, failure)
	return d.Finish(object, next, errors.Join(err, unfinalized, unreported))
}

// restrict publishes what only restricts the object, and returns the facts from the caches. due: a restriction was published, which the
// caches do not have yet, another worker is publishing it, or its publication has failed. If the caches cannot be read nobody knows of a
// restriction, so only the retry says that.
func (d Driver[O, F]) restrict(ctx context.Context, object O) (cached F, due bool, err error) {
	restricting, release, ok := d.Restrict(ctx, object)
	if !ok {
		return cached, true, nil
	}
	defer release()
	if cached, err = d.Kind.ReadPublished(restricting, d.Cached(), object); err != nil || d.Kind.Restriction(cached) == nil {
		return cached, false, err
	}
	facts, err := d.Kind.ReadPublished(restricting, d.Uncached(), object)
	if err != nil {
		return cached, true, err
	}
	if restriction := d.Kind.Restriction(facts); restriction != nil {
		return cached, true, restriction(restricting)
	}
	return cached, false, nil
}

// withdraw revokes what is published of a deleted object, deletes the delivered Secrets, and removes the finalizer. It does
// not ask for the finalizer first: its tenant may have removed it. What is in the tenant's namespace may fail for long, and
// then waits longer than the revocation does.
func (d Driver[O, F]) withdraw(ctx context.Context, object O) (reconcile.Result, error) {
	names, done, err := d.revoke(ctx, object)
	if err != nil && !Superseded(err) {
		err = errors.Join(err, d.Kind.ReportUnrevoked(ctx, object, err))
	}
	if !done {
		return again(err)
	}
	if wait := d.Wait(object); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	more, err := d.Secrets.DeleteOwned(ctx, object, names)
	if more {
		return d.Finish(object, AfterWrite, err)
	}
	var held bool
	if err == nil {
		held, err = d.Release(ctx, d.Tombstone, object)
	}
	if held {
		return d.Finish(object, HeldRecheck, d.Kind.ReportHeld(ctx, object))
	}
	return d.Finish(object, 0, err)
}

// revoke ends what is published of a deleted object. done is false if that failed, or another worker is doing it.
func (d Driver[O, F]) revoke(ctx context.Context, object O) (delivered []string, done bool, err error) {
	restricting, release, ok := d.Restrict(ctx, object)
	if !ok {
		return nil, false, nil
	}
	defer release()
	delivered, err = d.Kind.Revoke(restricting, object)
	return delivered, err == nil, err
}

// again ends a reconciliation that is to be repeated when the caches have what was written, or after an error.
func again(err error) (reconcile.Result, error) {
	if err != nil {
		return Finish(err)
	}
	return reconcile.Result{RequeueAfter: AfterWrite}, nil
}

// Restrictions reconciles what only restricts or ends the objects. Its workers write in the credentials namespace alone, so no
// tenant decides how long what another has ended is accepted. Driver does the same first, and reports status and failure.
type Restrictions[O client.Object, F any] struct{ Driver Driver[O, F] }

// Reconcile publishes what only restricts the object, or ends what is published of a deleted one.
func (r Restrictions[O, F]) Reconcile(ctx context.Context, object O) (reconcile.Result, error) {
	if object.GetDeletionTimestamp().IsZero() {
		if _, due, err := r.Driver.restrict(ctx, object); due || err != nil {
			return again(err)
		}
		return reconcile.Result{}, nil
	}
	if _, done, err := r.Driver.revoke(ctx, object); !done {
		return again(err)
	}
	return reconcile.Result{}, nil
}
