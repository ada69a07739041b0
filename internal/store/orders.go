package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/sessionhash"
)

// MaxOrderSessions is how many sessions of an order are listed.
//
// Redis holds one more, to know that there are more: one string for an order, of the random parts of their ids, the newest first. It is
// kept as long as its newest session, unless a rail reports on that. A list took as much time and 100 bytes more for an order.
const MaxOrderSessions = 20

// orderSessionsPerRequest is how many sessions of an order a merchant lists for the price of a
// request. That many cost Redis 50 µs, and as much again if some of them are due or removed, as
// much as three to six new sessions. Most orders have fewer.
const orderSessionsPerRequest = 10

// orderHashLength is enough to distinguish the orders of one account.
const orderHashLength = 22

// OrderText is the same for orders that people take for the same. The form in which Unicode has
// the letters, white space around, of any kind and length, and characters that nobody sees come
// from the till's keyboard, the scanner or the clipboard.
func OrderText(orderRef string) string {
	seen := func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}
	return strings.Join(strings.Fields(strings.Map(seen, norm.NFC.String(orderRef))), " ")
}

func orderHash(orderRef string) string {
	sum := sha256.Sum256([]byte(OrderText(orderRef)))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:orderHashLength]
}

// Account is what a merchant has in one mode.
type Account struct {
	// MerchantID is the bare id, without the "mer_" callers see.
	MerchantID string
	TestMode   bool
}

func (a Account) name() string { return session.Account(a.MerchantID, a.TestMode) }
func (a Account) space() redis.Keyspace {
	return redis.BucketKeyspace(session.MerchantBucket(a.MerchantID))
}

// sessionKeys is what the keys of its sessions begin with; the random part of the id follows.
func (a Account) sessionKeys() string {
	return a.space().Key(sessionhash.Key, session.IDPrefix(a.MerchantID, a.TestMode))
}

// OrderSessions are sessions of one orderRef.
type OrderSessions struct {
	// Sessions are the newest ones, pending ones too, the newest first: at most MaxOrderSessions.
	Sessions []session.Session
	// More: there were more.
	More bool
}

// ReadOrderSessions lists the sessions of an account that have the orderRef, as they are at one time. Sessions that are due are expired first;
// what is kept no longer is left out. Errors: redis.ErrCorrupt, redis.ErrUnavailable.
func (s *Store) ReadOrderSessions(ctx context.Context, account Account, orderRef string) (OrderSessions, error) {
	return s.expireOrder(ctx, account, orderRef, nil)
}

// OrderSessions is ReadOrderSessions for a request of the merchant. Each orderSessionsPerRequest
// sessions are charged as a request more. Errors are also those of Admit.
func (s *Store) OrderSessions(ctx context.Context, asks admission.Request, orderRef string) (admission.Admitted, OrderSessions, error) {
	account := Account{asks.MerchantID, asks.TestMode}
	call := s.admitter.NewCall(listOrderScript, &asks)
	call.AdmissionKeys()
	call.Key("order_key", account.space(), orderKey, account.name(), ":", orderHash(orderRef))
	call.AdmissionArgs()
	call.Text("session_prefix", account.sessionKeys())
	admitted, _, reply, err := run(ctx, &call, "list the sessions of an order")
	if err != nil {
		return admitted, OrderSessions{}, err
	}
	read, err := parseOrder(&reply, account, admitted.Now)
	if err == nil && len(read.doubtful) > 0 {
		read.OrderSessions, err = s.expireOrder(ctx, account, orderRef, read.ids)
	}
	return admitted, read.OrderSessions, err
}

// orderAttempts bounds how often an order is listed anew because sessions of it were created and became due meanwhile.
const orderAttempts = 4

// expireOrder lists an order, and expires those of its sessions that are due. A script can declare the keys of known sessions only. Of any
// other one that is missing or due it is doubtful what became of it: it must not be written, and may be on a server to which its slot moves.
func (s *Store) expireOrder(ctx context.Context, account Account, orderRef string, known []session.ID) (OrderSessions, error) {
	space := account.space()
	for range orderAttempts {
		call := redis.NewCall(expireOrderScript)
		call.Key("order_key", space, orderKey, account.name(), ":", orderHash(orderRef))
		call.Key("queue_key", space, outbox.QueueKey)
		call.Key("due_key", space, outbox.DueKey)
		call.Key("feed_key", space, outbox.FeedKey, account.name())
		for _, id := range known {
			call.MoreKey(space, sessionhash.Key, id.String())
			call.MoreKey(space, outbox.EventKey, feed.SessionEventID(id, feed.MarkEnded))
		}
		call.Text("session_prefix", account.sessionKeys())
		call.Text("history", s.historyArg)
		reply, err := s.redis.Run(ctx, &call)
		if err != nil {
			return OrderSessions{}, fmt.Errorf("list the sessions of an order: %w", err)
		}
		read, err := parseOrder(&reply, account, reply.Millis())
		if err != nil || !slices.ContainsFunc(read.doubtful, func(id session.ID) bool { return !slices.Contains(known, id) }) {
			return read.OrderSessions, err
		}
		known = read.ids
	}
	return OrderSessions{}, fmt.Errorf("list the sessions of an order: %w: they change too fast", redis.ErrUnavailable)
}

// orderList is what a script lists of an order.
type orderList struct {
	OrderSessions

	// ids are all of them, doubtful those that are missing or due.
	ids, doubtful []session.ID
}

// parseOrder reads what lib/list_order.lua returns.
func parseOrder(reply *redis.Reply, account Account, now time.Time) (orderList, error) {
	list := orderList{OrderSessions: OrderSessions{More: reply.Int() == 1}}
	rows := reply.List()
	for rows.More() {
		id, err := session.ParseID(session.IDPrefix(account.MerchantID, account.TestMode) + rows.Text())
		fields := rows.List()
		if err != nil {
			return orderList{}, redis.ErrCorrupt
		}
		list.ids = append(list.ids, id)
		if !sessionhash.Found(&fields) {
			list.doubtful = append(list.doubtful, id)
			continue
		}
		read, err := sessionhash.Parse(id, &fields)
		if err != nil {
			return orderList{}, err
		}
		if read.Status == session.Pending && !now.Before(read.ExpiresAt) {
			list.doubtful = append(list.doubtful, id)
		}
		list.Sessions = append(list.Sessions, read)
	}
	if reply.Err() != nil || rows.Err() != nil {
		return orderList{}, redis.ErrCorrupt
	}
	return list, nil
}
