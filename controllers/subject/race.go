package subject

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ErrGone says that the object is being deleted, or is no more: its watch will tell, and this pass ends.
var ErrGone = errors.New("the object is gone")

// afterRace is how soon an object is looked at again when somebody else was faster. The watch
// usually tells earlier.
const afterRace = 200 * time.Millisecond

// Confirm returns the object as the API server has it now, for a cache may be behind. The error is
// ErrGone when there is nothing left to work for.
func Confirm[T any, P interface {
	*T
	client.Object
}](ctx context.Context, live client.Reader, seen P) (P, error) {
	now := P(new(T))
	if err := live.Get(ctx, client.ObjectKeyFromObject(seen), now); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, ErrGone
		}
		return nil, fmt.Errorf("read it again: %w", err)
	}
	if now.GetUID() != seen.GetUID() || !now.GetDeletionTimestamp().IsZero() {
		return nil, ErrGone
	}
	return now, nil
}

// Settle ends a pass whose error has been reported. A lost race is no failure: the next pass sees
// what the winner wrote.
func Settle(err error) (reconcile.Result, error) {
	switch {
	case errors.Is(err, ErrGone):
		return reconcile.Result{}, nil
	case LostRace(err):
		return reconcile.Result{RequeueAfter: afterRace}, nil
	default:
		return reconcile.Result{}, err
	}
}

// LostRace reports whether a write was refused because its object is no longer as it was read. A
// namespace that is not found is a failure, for no next pass will see it otherwise.
func LostRace(err error) bool {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) &&
		status.Status().Details != nil && status.Status().Details.Kind != "namespaces"
}
