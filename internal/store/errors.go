package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Each error says what the caller is told. None of them ever holds a key, a digest or an e-mail.
var (
	// ErrKeyRejected says that the presented API key is not, or no longer, accepted.
	ErrKeyRejected = errors.New("the API key is not accepted")
	// ErrMerchantBlocked says that the key is good, but its merchant is not active.
	ErrMerchantBlocked = errors.New("the merchant is not active")
	// ErrRateLimited says that the caller is over its limit; the Quota is filled.
	ErrRateLimited = errors.New("over the rate limit")
	// ErrRotationLimited is an ErrRateLimited about the rotations of one ApiKey.
	ErrRotationLimited = fmt.Errorf("%w: rotations of an API key", ErrRateLimited)
	// ErrNewerOverride says that a newer override is stored already; nothing was written.
	ErrNewerOverride = errors.New("a newer override is stored")
	// ErrNotFound says that there is no such session for this caller; the Quota is filled.
	ErrNotFound = errors.New("no such session")
	// ErrIdempotencyMismatch says that the Idempotency-Key was used with another charge; the Quota
	// is filled. Only NewSession.RejectMismatch asks for it.
	ErrIdempotencyMismatch = errors.New("the Idempotency-Key was used with another charge")
	// ErrSessionEnded says that the session has ended in another way than was asked for; the Quota
	// is filled.
	ErrSessionEnded = errors.New("the session has already ended")
	// ErrPaymentConflict says that a report contradicts an earlier one of the same payment reference.
	ErrPaymentConflict = errors.New("the payment was reported otherwise before")
	// ErrCorrupt says that Redis holds something this program would not have written.
	ErrCorrupt = errors.New("redis holds unexpected data")
	// ErrUnavailable says that Redis gave no answer in time or refused the work. Whether the
	// script ran is unknown.
	ErrUnavailable = errors.New("redis is unavailable")
	// ErrEviction says that Redis may evict keys, and with them sessions and revocations.
	ErrEviction = errors.New("redis must have maxmemory-policy noeviction")
)

// failure turns an error of the client into ours. Of an error that Redis answered only the code is
// kept: the text may quote the command, and with it keys and digests.
func failure(err error) error {
	answered, ok := errors.AsType[redis.Error](err)
	if !ok {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	code, _, _ := strings.Cut(answered.Error(), " ")
	if code == "WRONGTYPE" {
		return fmt.Errorf("%w: it answered %s", ErrCorrupt, code)
	}
	return fmt.Errorf("%w: it answered %s", ErrUnavailable, code)
}
