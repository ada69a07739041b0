package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
)

// Why a payment does not hold a session.
var (
	// ErrReferenceUsed says that the payment was reported before.
	ErrReferenceUsed = errors.New("the payment was reported before")
	// ErrNotHoldable says that the session has ended.
	ErrNotHoldable = errors.New("the session has ended, so that no payment can hold it")
	// ErrExpiresTooSoon says that the session would expire before the end of the hold.
	ErrExpiresTooSoon = errors.New("the session expires before the end of the hold")
	// ErrHoldTooLong says that the rail would hold the session for more than session.MaxHeld.
	ErrHoldTooLong = errors.New("the rail would hold the session for too long in all")
)

// HeldError says that another payment holds the session.
type HeldError struct {
	// Left is for how long, unless it is renewed or released.
	Left time.Duration
}

func (HeldError) Error() string { return "another payment holds the session" }

// Hold is a payment that a rail is about to make, so that no other is made meanwhile.
type Hold struct {
	Rail session.Rail
	Ref  string
	// Duration is from now on; 0 releases the session.
	Duration time.Duration
	// MerchantNotActive: the merchant may not be paid.
	MerchantNotActive bool
}

// Hold holds a pending session for a payment until the time that it returns; zero: it is released. The same hold again renews it. To release
// it is no error if nothing holds it. Errors: ErrNotFound, also for the zero ID and sessions of test mode; HeldError;
// ErrReferenceUsed, ErrNotHoldable, ErrMerchantNotActive, ErrExpiresTooSoon, ErrHoldTooLong; redis.ErrCorrupt, redis.ErrUnavailable. After the last
// one the payment may hold the session: hold it again, or release it. It is also the error when fewer replicas than redis.Options.Replicas have
// acknowledged it.
func (s *Store) Hold(ctx context.Context, id session.ID, hold Hold) (time.Time, error) {
	if id.TestMode() {
		return time.Time{}, ErrNotFound
	}
	call := redis.NewCall(holdScript)
	endKeys(&call, redis.BucketKeyspace(id.Bucket()), id)
	call.Text("payment", hold.Rail.Scope(hold.Ref))
	call.Millis("hold_ms", hold.Duration)
	call.Millis("longest_ms", session.MaxHeld)
	call.Flag("merchant_not_active", hold.MerchantNotActive)
	call.Text("history", s.historyArg)
	reply, err := s.redis.RunReplicated(ctx, &call)
	if err != nil {
		return time.Time{}, fmt.Errorf("hold a session: %w", err)
	}
	if err := sessionError(&reply); err != nil {
		return time.Time{}, err
	}
	return parseHold(&reply)
}

func parseHold(reply *redis.Reply) (time.Time, error) {
	decision, until, now := reply.Text(), reply.Millis(), reply.Millis()
	if reply.Err() != nil {
		return time.Time{}, redis.ErrCorrupt
	}
	switch decision {
	case "held":
		return until, nil
	case "released":
		return time.Time{}, nil
	case string(session.InProgress):
		return time.Time{}, HeldError{until.Sub(now)}
	case string(session.ReferenceUsed):
		return time.Time{}, ErrReferenceUsed
	case string(session.Conflict):
		return time.Time{}, ErrNotHoldable
	case "merchant_not_active":
		return time.Time{}, admission.ErrMerchantNotActive
	case "expires_too_soon":
		return time.Time{}, ErrExpiresTooSoon
	case "hold_too_long":
		return time.Time{}, ErrHoldTooLong
	default:
		return time.Time{}, redis.ErrCorrupt
	}
}
