package directory

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
)

// KeyHandler is called with each change of a key, so that replicas which have not seen it learn of it. The directory refuses at once what a
// change refuses, before the call: how slow the handler is must not delay the end of a key, nor the changes of other keys. What a change newly
// accepts waits until the handler has written it to Redis: a replica that later sees only the deletion of the key finds in Redis what it must
// revoke. The methods return at once. Calls for one key are in the order of its changes. The records have only what an override needs.
type KeyHandler interface {
	// KeyUpdated is called with a newer record of a key. It calls written, once, when other replicas can know the record, or when it has failed to
	// write it and tries again later.
	KeyUpdated(record published.KeyRecord, written func())
	// KeyRevoked is called with the last known record of a key whose published object was deleted, cannot be decoded, or belongs
	// to another merchant now.
	KeyRevoked(record published.KeyRecord)
	// KeyEnded is called for a key whose ApiKey was deleted, with the time in its tombstone, if that is at hand: nothing that was ever
	// published of the key is valid.
	KeyEnded(record published.KeyRecord, ended time.Time)
	// KeyUnverified is called with a record that may be older than what other replicas know: at the first sight of a key, or when
	// an older record replaces a newer one.
	KeyUnverified(record published.KeyRecord)
}

// wait is what a key accepts until the handler has written its record.
type wait struct {
	// limit are the digests that the records before accepted, with their ends: the key accepts no other one, and none for longer.
	limit []published.Accepted
	// earlier, if set, is the newer record that an older one has replaced: requests are judged by it, as its key works on.
	earlier *key
}

// keyChange is what the watch has brought of a key.
type keyChange struct {
	// key is what to store at once. It may wait for the handler.
	key *key
	// notify calls the handler, which completes the key with written.
	notify func(handler KeyHandler, written func())
}

// newKeyChange returns the change from an earlier record, which may be nil, to next. A record that is older than its predecessor is
// superseded, and so are later ones of the same issue.
func newKeyChange(earlier, next *key, tombstone bool) keyChange {
	switch {
	case tombstone: // its record is the newest
		return keyChange{next, func(handler KeyHandler, _ func()) { handler.KeyEnded(next.record(), time.Time{}) }}
	case earlier == nil:
		return keyChange{next, func(handler KeyHandler, _ func()) { handler.KeyUnverified(next.record()) }}
	case next.merchant != earlier.merchant:
		return keyChange{next.waiting(&wait{}), func(handler KeyHandler, written func()) {
			handler.KeyRevoked(earlier.record())
			handler.KeyUpdated(next.record(), written)
		}}
	}
	order := next.order().Compare(earlier.order())
	restored := order < 0 && !next.superseded
	if restored || (earlier.superseded && next.issued == earlier.issued) {
		next.superseded = true
	}
	switch waits := earlier.wait(); {
	case restored:
		if waits == nil || waits.earlier == nil {
			waits = &wait{earlier: earlier}
		}
		return keyChange{next.waiting(waits), func(handler KeyHandler, written func()) {
			handler.KeyUpdated(earlier.record(), written) // replicas that missed it must not accept the restored record
			handler.KeyUnverified(next.record())
		}}
	case order > 0:
		return keyChange{next.after(earlier), func(handler KeyHandler, written func()) { handler.KeyUpdated(next.record(), written) }}
	case order == 0: // the same again, from a relist
		return keyChange{next.waiting(waits), func(KeyHandler, func()) {}}
	}
	return keyChange{next, func(KeyHandler, func()) {}}
}

// wait returns what the key waits for, or nil.
func (k *key) wait() *wait {
	if k.extra == nil {
		return nil
	}
	return k.extra.wait
}

// waiting returns the key with what it waits for; nil: nothing.
func (k *key) waiting(waits *wait) *key {
	if k.wait() == waits {
		return k
	}
	out := *k
	var extra keyExtra
	if k.extra != nil {
		extra = *k.extra
	}
	extra.wait = waits
	out.extra = &extra
	return &out
}

// after returns the key as it may be used before the handler has written its record: without what the earlier one did not accept.
func (k *key) after(earlier *key) *key {
	if waits := earlier.wait(); waits != nil && waits.earlier != nil && k.superseded && !k.disabled {
		return k.waiting(waits)
	}
	was := earlier.judged()
	record := was.record()
	for _, accepted := range k.record().Accepted() {
		until, known := was.acceptedUntil(&record, accepted.Digest)
		if !known || (!until.IsZero() && (accepted.Until.IsZero() || until.Before(accepted.Until))) {
			return k.waiting(&wait{limit: was.accepted()})
		}
	}
	return k.waiting(nil)
}

// accepted are the digests that the key accepts now, with their ends.
func (k *key) accepted() []published.Accepted {
	var accepted []published.Accepted
	record := k.record()
	for _, a := range record.Accepted() {
		if until, ok := k.acceptedUntil(&record, a.Digest); ok {
			accepted = append(accepted, published.Accepted{Digest: a.Digest, Until: until})
		}
	}
	return accepted
}

// acceptedUntil is as of the key's record, for a key that may wait.
func (k *key) acceptedUntil(record *published.KeyRecord, digest apikey.Digest) (until time.Time, accepted bool) {
	until, accepted = record.AcceptedUntil(digest)
	waits := k.wait()
	if !accepted || waits == nil || waits.earlier != nil {
		return until, accepted
	}
	for _, limit := range waits.limit {
		if !limit.Digest.Equal(digest) {
			continue
		}
		if until.IsZero() || (!limit.Until.IsZero() && limit.Until.Before(until)) {
			until = limit.Until
		}
		return until, true
	}
	return time.Time{}, false
}

// judged is the record by which requests are judged: the key itself, unless it has replaced a newer one which the handler has not written yet.
func (k *key) judged() *key {
	if waits := k.wait(); waits != nil && waits.earlier != nil {
		return waits.earlier
	}
	return k
}
