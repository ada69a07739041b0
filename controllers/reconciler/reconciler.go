// Package reconciler owns the pass that the operator makes over every Merchant and ApiKey: hold the object by a
// finalizer, decide on what the caches say, confirm it with the API server, write, report. What is decided and written
// is the business of packages merchants and apikeys.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
)

// Base is what the reconcilers of all kinds share. Every exported field is required.
type Base struct {
	// Client reads through the cache; of Secrets and ConfigMaps, the cache holds the published ones only.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Secrets are those in the tenants' namespaces.
	Secrets tenantsecret.Secrets
	Events  recorder.EventRecorder
	Clock   clock.PassiveClock
	// CredentialsNamespace is where published objects live.
	CredentialsNamespace string

	written versions
}

// Object is a custom resource, as its pointer type.
type Object[T any] interface {
	*T
	client.Object
	DeepCopy() *T
}

// Steps are what a pass does for one kind of object. O is the object, P the plan, with the facts it was made from.
type Steps[O client.Object, P any] struct {
	// Plan decides on what the caches say. The plan is certain if the API server need not be asked: nothing is to be
	// done, or no operator held the object before (added) and all writes are creations, which fail if anything is there.
	Plan func(ctx context.Context, object O, added bool) (plan P, certain bool, err error)
	// Confirm decides again, on what the API server says.
	Confirm func(ctx context.Context, object O) (P, error)
	// Apply writes what the plan says, and brings the facts in it up to date.
	Apply func(ctx context.Context, plan P) error
	// Report emits events and writes the status. It returns after which time there will be something to do; 0: never.
	Report func(ctx context.Context, plan P, failure error) (time.Duration, error)
	// Withdraw deletes what was written for an object that is being deleted.
	Withdraw func(ctx context.Context, object O) error
}

// Reconcile is one pass over one object.
func Reconcile[T any, O Object[T], P any](ctx context.Context, b *Base, object O, steps Steps[O, P]) (reconcile.Result, error) {
	if !object.GetDeletionTimestamp().IsZero() {
		return Finish(withdraw(ctx, b, object, steps))
	}
	if b.written.behind(object, b.Clock.Now()) {
		return reconcile.Result{RequeueAfter: afterWrite}, nil
	}
	added, err := addFinalizer(ctx, b, object)
	if err != nil {
		return Finish(err)
	}
	plan, err := decide(ctx, b, object, added, steps)
	if err == nil {
		err = steps.Apply(ctx, plan)
	}
	return report(ctx, plan, err, steps)
}

// decide acts on the caches only if that is certain. Else it asks the API server, so that a cache that is behind, such as
// one of a new leader, takes nothing back and makes nothing twice.
func decide[T any, O Object[T], P any](ctx context.Context, b *Base, object O, added bool, steps Steps[O, P]) (P, error) {
	plan, certain, err := steps.Plan(ctx, object, added)
	if err != nil || certain {
		return plan, err
	}
	live, err := readLive(ctx, b, object)
	if err != nil {
		return plan, err
	}
	return steps.Confirm(ctx, live)
}

// readLive returns the object as the API server has it. The error is errGone when there is nothing left to work for.
func readLive[T any, O Object[T]](ctx context.Context, b *Base, cached O) (O, error) {
	live := O(new(T))
	if err := b.Live.Get(ctx, client.ObjectKeyFromObject(cached), live); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, errGone
		}
		return nil, fmt.Errorf("read it from the API server: %w", err)
	}
	if live.GetUID() != cached.GetUID() || !live.GetDeletionTimestamp().IsZero() {
		return nil, errGone
	}
	return live, nil
}

func report[O client.Object, P any](ctx context.Context, plan P, failure error, steps Steps[O, P]) (reconcile.Result, error) {
	if errors.Is(failure, errGone) || lostRace(failure) {
		return Finish(failure)
	}
	after, err := steps.Report(ctx, plan, failure)
	if err := errors.Join(failure, err); err != nil {
		return Finish(err)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// errGone says that the object is being deleted, or is no more: its watch will report it, and this pass ends.
var errGone = errors.New("the object is gone")

// afterRace is how soon a pass follows one that lost a race. The watch usually starts it earlier.
const afterRace = 200 * time.Millisecond

// Finish ends a pass whose error has been reported. A lost race is no failure: the next pass sees what the winner wrote.
func Finish(err error) (reconcile.Result, error) {
	switch {
	case errors.Is(err, errGone):
		return reconcile.Result{}, nil
	case lostRace(err):
		return reconcile.Result{RequeueAfter: afterRace}, nil
	default:
		return reconcile.Result{}, err
	}
}

// lostRace reports whether a write was refused because its object is no longer as it was read. A
// namespace that is not found is a failure, for no next pass will see it otherwise.
func lostRace(err error) bool {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		status.Status().Details != nil && status.Status().Details.Kind != "namespaces"
}

// Wrote notes the version that a write of the operator left of an object.
func (b *Base) Wrote(object client.Object, version string) {
	b.written.wrote(object.GetUID(), version, b.Clock.Now())
}

// WriteTombstone says in the credentials namespace that the object has ended.
func (b *Base) WriteTombstone(ctx context.Context, kind published.TombstoneKind, object client.Object) error {
	return writes.Tombstone(ctx, b.Client, b.Live, b.CredentialsNamespace, published.Tombstone{
		Kind:    kind,
		ID:      published.ID(object.GetUID()),
		Source:  published.Source{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()},
		EndedAt: b.Clock.Now().UTC(),
	})
}

// Emit records an event of type Normal.
func (b *Base) Emit(object client.Object, reason, action, format string, args ...any) {
	b.Events.Eventf(object, nil, corev1.EventTypeNormal, reason, action, format, args...)
}

// Warn records an event of type Warning.
func (b *Base) Warn(object client.Object, reason, action, format string, args ...any) {
	b.Events.Eventf(object, nil, corev1.EventTypeWarning, reason, action, format, args...)
}

// Until returns the time from now to the first of the moments that is ahead; 0: none is.
func Until(now time.Time, moments ...time.Time) time.Duration {
	var next time.Duration
	for _, at := range moments {
		if at.After(now) && (next == 0 || at.Sub(now) < next) {
			next = at.Sub(now)
		}
	}
	return next
}
