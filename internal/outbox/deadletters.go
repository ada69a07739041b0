package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// DeadLetter is an event that was given up. It is kept for 30 days.
type DeadLetter struct {
	// Event has only an ID if it cannot be read.
	Event    feed.Event
	FailedAt time.Time
	Attempts int
	Details
}

// DeadLetterFilter selects dead letters.
type DeadLetterFilter struct {
	// MerchantID is a bare id; empty: of all merchants.
	MerchantID string
	// Merchant is namespace and name of a Merchant; empty: of all.
	Merchant string
	// ID is of an event; empty: of all.
	ID string
	// Limit is the largest number; 0: no limit.
	Limit int
}

func (f DeadLetterFilter) full(n int) bool { return f.Limit > 0 && n >= f.Limit }

// page is how many dead letters the next script reads, after n that were found.
func (f DeadLetterFilter) page(n int) int {
	if f.Limit == 0 || f.Merchant != "" { // which may be of few of them
		return deadPage
	}
	return min(f.Limit-n, deadPage)
}

func (f DeadLetterFilter) selects(letter DeadLetter) bool {
	return f.Merchant == "" || f.Merchant == letter.Merchant
}

// buckets are those in which such a dead letter may be.
func (f DeadLetterFilter) buckets() []session.Bucket {
	if f.MerchantID != "" {
		return []session.Bucket{session.MerchantBucket(f.MerchantID)}
	}
	return session.AllBuckets()
}

// DeadLetters returns dead letters, the newest first. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (o *Outbox) DeadLetters(ctx context.Context, filter DeadLetterFilter) ([]DeadLetter, error) {
	var letters []DeadLetter
	for _, bucket := range filter.buckets() {
		found, err := o.deadLettersIn(ctx, bucket, filter)
		if err != nil {
			return nil, fmt.Errorf("read dead letters: %w", err)
		}
		letters = append(letters, found...)
	}
	slices.SortStableFunc(letters, func(a, b DeadLetter) int {
		return cmp.Or(b.FailedAt.Compare(a.FailedAt), cmp.Compare(a.Event.ID, b.Event.ID))
	})
	if filter.full(len(letters)) {
		letters = letters[:filter.Limit]
	}
	return letters, nil
}

// deadPage is how many dead letters are read in one script, which holds Redis up meanwhile.
const deadPage = 100

// deadLettersIn reads the newest of a bucket, as many as the filter asks for.
func (o *Outbox) deadLettersIn(ctx context.Context, bucket session.Bucket, filter DeadLetterFilter) ([]DeadLetter, error) {
	space := redis.BucketKeyspace(bucket)
	key := deadLettersKey
	if filter.MerchantID != "" {
		key = accountDeadLettersKey + filter.MerchantID
	}
	var letters []DeadLetter
	for skip, more := 0, true; more && !filter.full(len(letters)); {
		limit := filter.page(len(letters))
		call := redis.NewCall(listDeadLettersScript)
		call.Key("dead_key", space, key)
		call.Int("skip", int64(skip))
		call.Int("limit", int64(limit))
		call.Text("event_prefix", space.Key(EventKey))
		call.Text("only", filter.ID)
		reply, err := o.redis.Run(ctx, &call)
		if err != nil {
			return nil, err
		}
		reply.RequireOK()
		read := int(reply.Int())
		skip, more = skip+read, read == limit && filter.ID == ""
		rows := reply.List()
		if err := reply.Err(); err != nil {
			return nil, err
		}
		for rows.More() && !filter.full(len(letters)) {
			row := rows.List()
			letter, err := parseDeadLetter(&row)
			if err != nil {
				return nil, err
			}
			if filter.selects(letter) {
				letters = append(letters, letter)
			}
		}
	}
	return letters, nil
}

func parseDeadLetter(row *redis.Reply) (DeadLetter, error) {
	id := row.Text()
	letter := DeadLetter{FailedAt: row.Millis()}
	letter.Reason, letter.Attempts = row.OptionalText(), int(row.Int())
	letter.Answer, letter.Merchant = row.OptionalText(), row.OptionalText()
	event, err := ParseEvent(id, row.Map())
	if row.Err() != nil {
		return DeadLetter{}, row.Err()
	}
	if err != nil {
		event = feed.Event{ID: id}
	}
	letter.Event = event
	return letter, nil
}

// ResendRequest selects dead letters to send again.
type ResendRequest struct {
	// IDs of events.
	IDs []string
	// MerchantID is a bare id: those of other merchants are left. Empty: of any merchant.
	MerchantID string
	// Resume enables disabled endpoints of these dead letters first.
	Resume bool
}

// Resent is what Resend did.
type Resent struct {
	// Sent is how many events are due again.
	Sent int
	// Disabled are the endpoints to which nothing was sent, because they are disabled; each once.
	Disabled []DisabledEndpoint
}

// DisabledEndpoint is an endpoint with dead letters.
type DisabledEndpoint struct {
	EndpointState
	// Merchant is namespace and name of the Merchant; empty: they are not known.
	Merchant string
	// Events is how many of its dead letters were not sent again.
	Events int
}

// Resend makes dead letters due at once, with a new schedule and the same content. It leaves those of
// disabled endpoints, which would be dead letters again at once, unless they are to be resumed. Errors: redis.ErrCorrupt,
// redis.ErrUnavailable.
func (o *Outbox) Resend(ctx context.Context, request ResendRequest) (Resent, error) {
	resent, err := o.resend(ctx, request)
	if err != nil || !request.Resume || len(resent.Disabled) == 0 {
		return resent, err
	}
	for _, endpoint := range resent.Disabled {
		if _, err := o.ResumeEndpoint(ctx, endpoint.MerchantID, Target{}); err != nil {
			return resent, err
		}
	}
	rest, err := o.resend(ctx, request)
	rest.Sent += resent.Sent
	return rest, err
}

func (o *Outbox) resend(ctx context.Context, request ResendRequest) (resent Resent, err error) {
	for some := range slices.Chunk(request.IDs, deadPage) {
		if request.MerchantID != "" {
			err = o.resendAccount(ctx, redis.BucketKeyspace(session.MerchantBucket(request.MerchantID)), request.MerchantID, some, &resent)
		} else {
			err = o.resendAnywhere(ctx, some, &resent)
		}
		if err != nil {
			return resent, fmt.Errorf("send dead letters again: %w", err)
		}
	}
	return resent, nil
}

// resendAnywhere searches every bucket: not every id shows its bucket, and this is a rare request.
func (o *Outbox) resendAnywhere(ctx context.Context, ids []string, resent *Resent) error {
	for _, bucket := range session.AllBuckets() {
		if err := o.resendIn(ctx, bucket, ids, resent); err != nil {
			return err
		}
	}
	return nil
}

// resendIn sends those of a bucket again.
func (o *Outbox) resendIn(ctx context.Context, bucket session.Bucket, ids []string, resent *Resent) error {
	space := redis.BucketKeyspace(bucket)
	call := redis.NewCall(findDeadLettersScript)
	call.Key("dead_key", space, deadLettersKey)
	call.Text("event_prefix", space.Key(EventKey))
	for _, id := range ids {
		call.More(id)
	}
	reply, err := o.redis.Run(ctx, &call)
	if err != nil {
		return err
	}
	reply.RequireOK()
	accounts := reply.List()
	byAccount := map[string][]string{}
	for _, id := range ids {
		account := accounts.Text()
		byAccount[account] = append(byAccount[account], id)
	}
	if err := errors.Join(reply.Err(), accounts.Err()); err != nil {
		return err
	}
	delete(byAccount, "")
	for account, letters := range byAccount {
		if err := o.resendAccount(ctx, space, account, letters, resent); err != nil {
			return err
		}
	}
	return nil
}

// resendAccount sends those of an account again, and leaves those of others.
func (o *Outbox) resendAccount(ctx context.Context, space redis.Keyspace, account string, ids []string, resent *Resent) error {
	call := redis.NewCall(resendDeadLettersScript)
	call.Key("queue_key", space, QueueKey)
	call.Key("due_key", space, DueKey)
	call.Key("dead_key", space, deadLettersKey)
	call.Key("account_dead_key", space, accountDeadLettersKey, account)
	call.Key("endpoint_key", space, EndpointKey, account)
	call.Key("watched_key", space, watchedKey)
	for _, id := range ids {
		call.MoreKey(space, EventKey, id)
	}
	call.Text("account", account)
	for _, id := range ids {
		call.More(id)
	}
	reply, err := o.redis.Run(ctx, &call)
	if err != nil {
		return err
	}
	reply.RequireOK()
	resent.Sent += int(reply.Int())
	for rows := reply.List(); rows.More(); {
		row := rows.List()
		merchantID, merchant, fields := row.Text(), row.Text(), row.List()
		state, err := parseEndpoint(merchantID, &fields)
		if err := errors.Join(row.Err(), err); err != nil {
			return err
		}
		resent.addDisabled(DisabledEndpoint{EndpointState: state, Merchant: merchant, Events: 1})
	}
	return reply.Err()
}

func (r *Resent) addDisabled(endpoint DisabledEndpoint) {
	for i, known := range r.Disabled {
		if known.MerchantID == endpoint.MerchantID {
			r.Disabled[i].Events++
			r.Disabled[i].Merchant = cmp.Or(known.Merchant, endpoint.Merchant)
			return
		}
	}
	r.Disabled = append(r.Disabled, endpoint)
}
