package keystate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// Override says which digests of one ApiKey are accepted, to replicas whose watch may not know yet.
type Override struct {
	Ref
	// Order is that of the record it is from.
	Order published.Order
	// Accepted are the digests that are accepted, the current one first; none: the key is revoked.
	Accepted []Accepted
	// Ended: the ApiKey was deleted, so nothing of it is accepted again. The script makes the order, by the clock of Redis; Order is what it
	// is above at least.
	Ended bool
}

// Accepted is a digest that is accepted until a time; zero: without an end.
type Accepted struct {
	Digest apikey.Digest
	Until  time.Time
}

// Accepts reports whether the digest is accepted at the time now.
func (o Override) Accepts(digest apikey.Digest, now time.Time) bool {
	for _, accepted := range o.Accepted {
		if accepted.Digest.Equal(digest) && (accepted.Until.IsZero() || now.Before(accepted.Until)) {
			return true
		}
	}
	return false
}

// AcceptsOnly is Accepts for the current digest, the first of all.
func (o Override) AcceptsOnly(digest apikey.Digest, now time.Time) bool {
	o.Accepted = o.Accepted[:min(len(o.Accepted), 1)]
	return o.Accepts(digest, now)
}

// ErrNewerOverride says that a newer override is stored already; nothing was written.
var ErrNewerOverride = errors.New("a newer override is stored")

// OverrideLifetime is how long an override is kept. A replica whose watch is further behind may have
// missed a revocation permanently.
const OverrideLifetime = 7 * 24 * time.Hour

// endMargin is the largest difference between the clocks of Redis and of the Kubernetes API. With it, the end of an ApiKey is newer than
// every record that was ever published of it.
const endMargin = time.Minute

// WriteOverride stores the override for 7 days. It never replaces a newer one, and one of the same order
// only to revoke the key. Errors: ErrNewerOverride, redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) WriteOverride(ctx context.Context, override Override) error {
	if !override.Ended {
		return s.writeOverride(ctx, override, "")
	}
	call := redis.NewCall(endOverrideScript)
	call.Key("override_key", override.space(), OverrideKey, override.KeyID)
	call.Int("known", override.Order.Issued)
	call.Millis("margin", endMargin)
	call.Millis("keep", OverrideLifetime)
	if err := overrideError(s.redis.Run(ctx, &call)); err != nil {
		return err
	}
	s.expireEnded(ctx, override.Ref)
	return nil
}

// expireEnded lets last uses and the last rotation of an ended key end with its override: a tenant may make and delete ApiKeys without end. It is a script
// of its own, because while a slot moves Redis refuses one whose keys are not all there, and the end of a key must not wait for that. If it fails,
// they end by themselves later.
func (s *Store) expireEnded(ctx context.Context, key Ref) {
	call := redis.NewCall(expireEndedScript)
	call.Key("last_use_key", key.space(), LastUseKey, key.KeyID)
	call.Key("rotation_key", key.space(), outbox.RotationKey, key.KeyID)
	call.Millis("keep", OverrideLifetime)
	_, _ = s.redis.Run(ctx, &call)
}

// RevokeGone revokes a key whose published object is gone. Unlike WriteOverride it revokes what a newer override accepts, too, if that is
// the one of the order stored, which was read before the published object: a later one may be of a record that was published since. Errors
// are those of WriteOverride.
func (s *Store) RevokeGone(ctx context.Context, key Ref, known, stored published.Order) error {
	return s.writeOverride(ctx, Override{Ref: key, Order: known}, decimal(stored.Issued)+" "+decimal(stored.Revision))
}

func (s *Store) writeOverride(ctx context.Context, override Override, gone string) error {
	call := redis.NewCall(writeOverrideScript)
	call.Key("override_key", override.space(), OverrideKey, override.KeyID)
	call.Int("issued", override.Order.Issued)
	call.Int("revision", override.Order.Revision)
	call.Text("list", override.list())
	call.Flag("revokes", len(override.Accepted) == 0)
	call.Millis("keep", OverrideLifetime)
	call.Text("gone", gone)
	return overrideError(s.redis.Run(ctx, &call))
}

// overrideError returns the error that the reply to a written override stands for.
func overrideError(reply redis.Reply, err error) error {
	if err != nil {
		return fmt.Errorf("write an override: %w", err)
	}
	switch reply.Text() {
	case "OK":
		return nil
	case "NEWER":
		return ErrNewerOverride
	}
	return fmt.Errorf("write an override: %w", redis.ErrCorrupt)
}

// MaxOverrides is how many keys Overrides takes at once.
const MaxOverrides = 500

// Overrides returns the override of each key, the zero Override for one that has none, and the time of Redis. All keys are of one bucket.
// Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) Overrides(ctx context.Context, keys ...Ref) (overrides []Override, now time.Time, err error) {
	call := redis.NewCall(readOverridesScript)
	for _, key := range keys {
		call.MoreKey(key.space(), OverrideKey, key.KeyID)
	}
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read overrides: %w", err)
	}
	overrides = make([]Override, len(keys))
	for i, key := range keys {
		if reply.Absent() {
			continue
		}
		if overrides[i], err = parseOverride(key, reply.Text()); err != nil {
			return nil, time.Time{}, fmt.Errorf("read overrides: %w", err)
		}
	}
	now = reply.Millis()
	if err := reply.Err(); err != nil {
		return nil, time.Time{}, fmt.Errorf("read overrides: %w", err)
	}
	return overrides, now, nil
}

// list writes what lib/admission.lua reads behind the order: each accepted digest and its end in milliseconds or 0, or a dash
// for none, all parted by single spaces.
func (o Override) list() string {
	if len(o.Accepted) == 0 {
		return "-"
	}
	words := make([]string, 0, 2*len(o.Accepted))
	for _, accepted := range o.Accepted {
		var end int64
		if !accepted.Until.IsZero() {
			end = accepted.Until.UnixMilli()
		}
		words = append(words, accepted.Digest.Hex(), decimal(end))
	}
	return strings.Join(words, " ")
}

// parseOverride reads "<issued> <revision> <list>".
func parseOverride(key Ref, text string) (Override, error) {
	text, _, _ = strings.Cut(text, "\t")
	words := strings.Split(text, " ")
	var numbers []int64
	number := func(word string) int64 {
		n, err := strconv.ParseInt(word, 10, 64)
		if err == nil {
			numbers = append(numbers, n)
		}
		return n
	}
	const head = 2
	if len(words) <= head {
		return Override{}, redis.ErrCorrupt
	}
	override := Override{Ref: key, Order: published.Order{Issued: number(words[0]), Revision: number(words[1])}}
	list := words[head:]
	if len(list) == 1 && list[0] == "-" {
		list = nil
	}
	for ; len(list) >= 2; list = list[2:] {
		digest, err := apikey.ParseDigest(list[0])
		if err != nil {
			return Override{}, redis.ErrCorrupt
		}
		accepted := Accepted{Digest: digest}
		if end := number(list[1]); end != 0 {
			accepted.Until = time.UnixMilli(end)
		}
		override.Accepted = append(override.Accepted, accepted)
	}
	if len(list) > 0 || len(numbers) != head+len(override.Accepted) {
		return Override{}, redis.ErrCorrupt
	}
	return override, nil
}
