package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// A rail owes the refund of a payment that its session does not accept until it has confirmed
// refunds of all of it, and that of a merchant's request until it has confirmed or rejected it. The
// script that refuses the payment or records the request lists it in owedKey or requestedKey, for a
// metric, in refundsKey, for its rail, and a request in accountRequestedKey, for its merchant; the
// script that records the end removes it. The lists are indexes: the session itself decides.

// OwedCounts are how many refunds are owed, for each age: of refused payments, and asked for by merchants.
type OwedCounts struct{ Payments, Requests []int64 }

// CountOwed counts the refunds of all buckets that rails owe and that have waited for at least each of these ages, which are given from the highest
// on. It takes one round trip; in a Redis Cluster, one to each server. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (s *Store) CountOwed(ctx context.Context, ages []time.Duration) (OwedCounts, error) {
	args := func(call *redis.Call) {
		call.Millis("keep", s.keepReported())
		for _, age := range ages {
			call.MoreInt(age.Milliseconds())
		}
	}
	counts := OwedCounts{make([]int64, len(ages)), make([]int64, len(ages))}
	_, err := redis.Poll(ctx, s.redis, pollOwedScript, []string{owedKey, requestedKey}, args, func(reply *redis.Reply, _ session.Bucket) struct{} {
		for _, of := range [][]int64{counts.Payments, counts.Requests} {
			for age := range ages {
				of[age] += reply.Int()
			}
		}
		return struct{}{}
	})
	if err != nil { // a part would look as if something had been refunded
		return OwedCounts{}, fmt.Errorf("count the refunds that are owed: %w", err)
	}
	return counts, nil
}

// Overdue are the requests of a merchant that have waited for long.
type Overdue struct {
	Count int64
	// Oldest is the session whose request has waited longest; zero: no request has waited for so long.
	Oldest session.ID
}

// OverdueRequests counts the requests of an account that have waited for at least this long. The error is redis.ErrCorrupt or redis.ErrUnavailable.
func (s *Store) OverdueRequests(ctx context.Context, account Account, age time.Duration) (Overdue, error) {
	call := redis.NewCall(findOverdueRequestsScript)
	call.Key("account_requested_key", account.space(), accountRequestedKey, account.name())
	call.Millis("age", age)
	call.Millis("keep", s.keepReported())
	reply, err := s.redis.Run(ctx, &call)
	if err != nil {
		return Overdue{}, fmt.Errorf("read the open requests for refunds: %w", err)
	}
	reply.RequireOK()
	overdue := Overdue{Count: reply.Int()}
	if member := reply.OptionalText(); member != "" {
		name, _, _ := strings.Cut(member, " ")
		id, err := session.ParseID(name)
		reply.Require(err == nil)
		overdue.Oldest = id
	}
	return overdue, reply.Err()
}

// OwedPlace is a place in the list of what a rail owes; the zero OwedPlace is before all of it.
type OwedPlace struct {
	// At is when it was listed, and Member what, as Redis has it.
	At     time.Time
	Member string
}

func (p OwedPlace) compare(other OwedPlace) int {
	return cmp.Or(p.At.Compare(other.At), cmp.Compare(p.Member, other.Member))
}

// Owed is a refund that a rail owes: of a refused payment, or as a merchant has asked.
type Owed struct {
	// Since is when the payment was refused, or the refund asked for.
	Since   time.Time
	Session session.Session
	// Refund is what the rail confirms. Its reference is proposed for a payment, and that of the request otherwise.
	Refund   session.Refund
	Currency string
	// Decision is why the payment was refused; empty: the merchant has asked.
	Decision session.Decision
	// Reason is the merchant's, if it has given one.
	Reason string
}

// OwedPage is a part of what a rail owes.
type OwedPage struct {
	Refunds []Owed
	// Next is where the following page begins; zero: there is none.
	Next OwedPlace
	// Incomplete: some of it could not be read now.
	Incomplete bool
}

// Owed lists what a rail owes, the oldest first, behind a place. A page has at most limit refunds, maybe fewer, even none, and still a next page:
// some that are listed may not be owed any more. It takes two round trips, or three if a bucket has many. The error is redis.ErrCorrupt or
// redis.ErrUnavailable, if nothing could be read.
func (s *Store) Owed(ctx context.Context, rail session.Rail, after OwedPlace, limit int) (OwedPage, error) {
	each := max(min(limit, leastOfBucket), limit/leastOfBucket)
	lists, err := s.listOwed(ctx, session.AllBuckets(), rail, after, each)
	if err != nil && len(lists) == 0 {
		return OwedPage{}, fmt.Errorf("list what a rail owes: %w", err)
	}
	page := OwedPage{Incomplete: err != nil || slices.ContainsFunc(lists, func(l owedList) bool { return l.unread })}
	places, next := mergeOwed(lists)
	if next != (OwedPlace{}) && len(places) < limit { // one merchant's many refunds must not shorten the pages
		places, next = mergeOwed(s.readOwedOn(ctx, lists, rail, after, limit, each))
	}
	if len(places) > limit {
		places = places[:limit]
		next = places[limit-1]
	}
	page.Next = next
	stories, unread := s.readStories(ctx, places)
	page.Incomplete = page.Incomplete || unread
	for _, place := range places {
		if owed, ok := findOwed(stories, rail, place); ok {
			page.Refunds = append(page.Refunds, owed)
		}
	}
	return page, nil
}

// leastOfBucket is how many places a page reads of each bucket at least, as far as its limit goes, and which part of the limit beyond that. All of the
// limit of each of 64 buckets would keep Redis for 9 ms.
const leastOfBucket = 8

// owedList is what a rail owes in one bucket.
type owedList struct {
	bucket session.Bucket
	places []OwedPlace
	more   bool // the bucket may have more
	unread bool
}

// listOwed lists at most so many places of each of the buckets.
func (s *Store) listOwed(ctx context.Context, buckets []session.Bucket, rail session.Rail, after OwedPlace, each int) ([]owedList, error) {
	args := func(call *redis.Call) {
		at := int64(0)
		if !after.At.IsZero() {
			at = after.At.UnixMilli()
		}
		call.Int("after", at)
		call.Text("member", after.Member)
		call.Int("limit", int64(each))
		call.Millis("keep", s.keepReported())
	}
	parse := func(reply *redis.Reply, bucket session.Bucket) owedList {
		found := owedList{bucket: bucket}
		if reply.Absent() {
			found.unread = true
			return found
		}
		for listed := reply.List(); listed.More(); {
			place := OwedPlace{Member: listed.Text(), At: listed.Millis()}
			reply.Require(listed.Err() == nil)
			found.places = append(found.places, place)
		}
		found.more = len(found.places) == each
		return found
	}
	return redis.PollBuckets(ctx, s.redis, buckets, listRefundsScript, []string{refundsKey + string(rail)}, args, parse)
}

// mergeOwed returns the places of the lists in their order, as far as all lists go. next is where a list ends that goes on; zero: none does.
func mergeOwed(lists []owedList) (places []OwedPlace, next OwedPlace) {
	for _, l := range lists {
		places = append(places, l.places...)
		if end := l.end(); l.more && (next == (OwedPlace{}) || end.compare(next) < 0) {
			next = end
		}
	}
	slices.SortFunc(places, OwedPlace.compare)
	if next != (OwedPlace{}) {
		places = slices.DeleteFunc(places, func(p OwedPlace) bool { return p.compare(next) > 0 })
	}
	return places, next
}

// end is the last place of a list that has one.
func (l owedList) end() OwedPlace {
	if len(l.places) == 0 {
		return OwedPlace{}
	}
	return l.places[len(l.places)-1]
}

// readOwedOn reads the lists that end first up to the limit, as many as can shorten a page: each of the others ends behind a whole page, because
// each of those before it has at least so many places. What cannot be read now stays as it is.
func (s *Store) readOwedOn(ctx context.Context, lists []owedList, rail session.Rail, after OwedPlace, limit, each int) []owedList {
	short := slices.DeleteFunc(slices.Clone(lists), func(l owedList) bool { return !l.more })
	slices.SortFunc(short, func(a, b owedList) int { return a.end().compare(b.end()) })
	var buckets []session.Bucket
	for _, l := range short[:min(len(short), (limit+each-1)/each)] {
		buckets = append(buckets, l.bucket)
	}
	longer, _ := s.listOwed(ctx, buckets, rail, after, limit)
	for _, l := range longer {
		if !l.unread {
			lists[slices.IndexFunc(lists, func(old owedList) bool { return old.bucket == l.bucket })] = l
		}
	}
	return lists
}

// readsAtOnce is how many sessions a page reads at once.
const readsAtOnce = 16

// readStories reads the sessions of these places, each once, by their ids as the places have them. A session that is not kept any more is missing.
// unread: one of them could not be read.
func (s *Store) readStories(ctx context.Context, places []OwedPlace) (stories map[string]session.Story, unread bool) {
	ids := map[string]session.ID{}
	for _, place := range places {
		name, _, _ := strings.Cut(place.Member, " ")
		id, err := session.ParseID(name)
		unread = unread || err != nil
		if err == nil {
			ids[name] = id
		}
	}
	stories = make(map[string]session.Story, len(ids))
	var mu sync.Mutex
	var reading errgroup.Group
	reading.SetLimit(readsAtOnce)
	for name, id := range ids {
		reading.Go(func() error {
			story, err := s.ReadStory(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				stories[name] = story
			case !errors.Is(err, ErrNotFound):
				unread = true
			}
			return nil
		})
	}
	_ = reading.Wait()
	return stories, unread
}

// findOwed returns what is listed at a place, unless it is not owed any more, as its session says.
func findOwed(stories map[string]session.Story, rail session.Rail, listed OwedPlace) (Owed, bool) {
	id, name, _ := strings.Cut(listed.Member, " ")
	story, found := stories[id]
	if !found {
		return Owed{}, false
	}
	owed := Owed{Since: listed.At, Session: story.Session}
	if refused, ref, ok := session.ParseScoped(name); ok {
		at := slices.IndexFunc(story.Refused, func(p session.RefusedPayment) bool { return p.Rail == refused && p.Ref == ref })
		if at < 0 {
			return Owed{}, false
		}
		payment := story.Refused[at]
		owed.Decision, owed.Currency = payment.Decision, payment.Currency
		owed.Refund = session.Refund{
			Rail: rail, PaymentRef: ref, Ref: session.NewOwedRef(story.Session.ID, payment.Payment, len(payment.Refunds)),
			AmountCents: payment.AmountCents - session.SumRefunds(payment.Refunds),
		}
		return owed, owed.Refund.AmountCents > 0
	}
	at := slices.IndexFunc(story.Requests, func(r session.RefundRequest) bool { return r.ID == name && r.Status == session.RefundRequested })
	if at < 0 {
		return Owed{}, false
	}
	request := story.Requests[at]
	owed.Reason, owed.Currency = request.Reason, story.Session.Currency
	owed.Refund = session.Refund{Rail: rail, PaymentRef: story.Session.PaymentRef, Ref: request.ID, AmountCents: request.AmountCents}
	return owed, true
}
