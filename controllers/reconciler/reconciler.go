// Package reconciler has what the reconciliations of Merchants and ApiKeys share: the order of their steps (Driver),
// finalizers, uncached reads, writes of the status, warnings, back-off.
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/budget"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/controllers/writes"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

// Base is shared by all reconcilers. Every exported field is required.
type Base struct {
	// Client reads from the cache, which has only the published Secrets and ConfigMaps.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Secrets are those in the tenants' namespaces.
	Secrets tenantsecret.Secrets
	// Tombstones finds the tombstones of deleted objects.
	Tombstones *budget.Index
	Events     recorder.EventRecorder
	Audit      auditlog.Log
	Clock      clock.PassiveClock
	// ClockWrong reports whether the clock differs too much from that of the API server, at the last answer. Then nothing is rotated,
	// ended or deleted because of the time.
	ClockWrong func() bool
	// CredentialsNamespace is the namespace of the published objects.
	CredentialsNamespace string

	written     versions
	failures    failures
	warnings    warnings
	events      eventBudgets
	restricting restricting
	begin       sync.Once
	began       time.Time
}

// Object is a custom resource, as a pointer type.
type Object[T any] interface {
	*T
	client.Object
}

// Younger reports whether the object was created after this operator looked at its first one. Then no operator before it has written its status,
// and all that it has not written itself is its tenant's.
func (b *Base) Younger(object client.Object) bool {
	b.begin.Do(func() { b.began = b.Clock.Now() })
	return object.GetCreationTimestamp().After(b.began)
}

// Time returns the time for a decision, and whether the clock is wrong. Take it after reading the facts: a process that was frozen meanwhile
// would judge new facts by an old time, and with each answer the clocks are compared.
func (b *Base) Time() (now time.Time, clockWrong bool) {
	clockWrong = b.ClockWrong() // first: if that changes here, the time is that of the API server
	return b.Clock.Now().UTC(), clockWrong
}

// Wait returns how long the object must not be reconciled: the cache is older than the operator's own write, or it has just failed.
func (b *Base) Wait(object client.Object) time.Duration {
	if b.written.behind(object, b.Clock.Now()) {
		return AfterWrite
	}
	return b.failures.wait(object, b.Clock.Now())
}

// Finish ends a reconciliation of the object. next is the time until the next check is due; 0: never.
func (b *Base) Finish(object client.Object, next time.Duration, err error) (reconcile.Result, error) {
	result, failure := Finish(err)
	b.failures.note(object, failure != nil, b.Clock.Now())
	if err == nil {
		result.RequeueAfter = next
	}
	return result, failure
}

// Source is where facts are read.
type Source struct {
	client.Reader

	cached bool
}

// Cached are the caches, which may be late.
func (b *Base) Cached() Source { return Source{b.Client, true} }

// Uncached is the API server.
func (b *Base) Uncached() Source { return Source{b.APIReader, false} }

// IsCached reports whether what is read may be late.
func (s Source) IsCached() bool { return s.cached }

// Current returns the object, which was read from the caches, as the source has it. The error, for Finish, says if it needs no
// reconciliation.
func Current[T any, O Object[T]](ctx context.Context, from Source, cached O) (O, error) {
	if from.cached {
		return cached, nil
	}
	live := O(new(T))
	if err := from.Get(ctx, client.ObjectKeyFromObject(cached), live); err != nil {
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

// errGone: the object is being deleted or does not exist. Its watch reports that, so this reconciliation ends.
var errGone = errors.New("the object is gone")

// afterRace is how soon to reconcile again after a lost race. The watch is usually faster.
const afterRace = 200 * time.Millisecond

// Superseded reports whether the error says that the object was read in another version than it has now. There is nothing to report:
// the next reconciliation sees that version.
func Superseded(err error) bool { return errors.Is(err, errGone) || lostRace(err) }

// Finish ends a reconciliation whose error has been reported. A lost race is not an error: the next reconciliation
// sees the new version.
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

// lostRace reports whether a write was refused because its object has changed. A missing namespace is an error,
// because retrying does not help.
func lostRace(err error) bool {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		status.Status().Details != nil && status.Status().Details.Kind != "namespaces"
}

// Wrote notes the version after a write of the operator.
func (b *Base) Wrote(object client.Object, version string) {
	b.written.wrote(object.GetUID(), version, b.Clock.Now())
}

// ApplyStatus applies the status of an object that was read with the resourceVersion in apply; this prevents a write over a newer
// spec or over another object of the same name. (The API server ignores a UID in an apply to the status.) The answer is decoded into
// apply, and version returns the resourceVersion there.
func (b *Base) ApplyStatus(ctx context.Context, object client.Object, apply runtime.ApplyConfiguration, version func() *string) error {
	if err := b.Client.Status().Apply(ctx, apply, client.ForceOwnership, client.FieldOwner(writes.FieldOwner)); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	if written := version(); written != nil {
		b.Wrote(object, *written)
	}
	return nil
}

// WriteTombstone records in the credentials namespace that the object was deleted. merchantID is the id of the Merchant of an ApiKey, if known.
func (b *Base) WriteTombstone(ctx context.Context, kind published.TombstoneKind, object client.Object, merchantID string) error {
	return writes.Tombstone(ctx, b.Client, b.APIReader, b.CredentialsNamespace, published.Tombstone{
		Kind:       kind,
		ID:         published.ID(object.GetUID()),
		Source:     published.Source{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID()},
		EndedAt:    b.Clock.Now().UTC(),
		MerchantID: merchantID,
	})
}

// EndedMargin is how long what has ended stays in a published record, where readers compare its end with their own clocks. It is longer
// than the clocks of operator and API server may differ.
const EndedMargin = 10 * time.Minute

// ClockRecheck is how soon to try again what a wrong clock has deferred.
const ClockRecheck = time.Minute

// Recheck returns when to try again what was due at one of these times and is deferred because of a wrong clock; zero: nothing is.
func Recheck(now time.Time, clockWrong bool, times ...time.Time) time.Time {
	for _, at := range times {
		if clockWrong && !at.IsZero() && !at.After(now) {
			return now.Add(ClockRecheck)
		}
	}
	return time.Time{}
}

// Until returns the time from now to the first time that is ahead; 0: none.
func Until(now time.Time, times ...time.Time) time.Duration {
	var next time.Duration
	for _, at := range times {
		if at.After(now) && (next == 0 || at.Sub(now) < next) {
			next = at.Sub(now)
		}
	}
	return next
}
