// Package storetest is what tests of packages on Redis share: connections, what they are given, and looks at what Redis holds.
package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/blocked"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
	"github.com/merchant-operator/merchant-operator/internal/store/receipts"
)

// Timeout is one that no busy machine exceeds.
const Timeout = 20 * time.Second

// Must fails the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Client returns a connection with Timeout, unless the test sets another one. It is closed with the test.
func Client(t testing.TB, url string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	options := redis.Options{URL: url, Timeout: Timeout}
	for _, c := range change {
		c(&options)
	}
	client, err := redis.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close the connection to Redis: %v", err)
		}
	})
	return client
}

// Services are what shares one Redis.
type Services struct {
	*store.Store
	*admission.Admitter
	*outbox.Outbox
	*redis.Client

	Blocked  *blocked.Store
	Keys     *keystate.Store
	Receipts *receipts.Store
}

// New opens Services with Timeout, unless the test sets another one.
func New(t testing.TB, url string, change ...func(*redis.Options)) *Services {
	t.Helper()
	client := Client(t, url, change...)
	s := &Services{nil, admission.New(client, 0), outbox.New(client), client, blocked.New(client), keystate.New(client, 0), receipts.New(client)}
	s.reopen(t, store.Options{})
	return s
}

// Store returns a store with the default options.
func Store(t testing.TB, client *redis.Client) *store.Store {
	t.Helper()
	opened, err := store.New(client, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// Open is Store and Client in one.
func Open(t testing.TB, url string, change ...func(*redis.Options)) *store.Store {
	t.Helper()
	return Store(t, Client(t, url, change...))
}

// Merchant returns an admission that is admitted: a fresh merchant with a live key and a limit no
// test reaches by accident.
func Merchant() admission.Request {
	return admission.Request{
		MerchantID: ID(),
		KeyID:      ID(),
		Order:      published.Order{Revision: 3},
		Digest:     Digest(),
		Accepted:   true,
		Limit:      ratelimit.Policy{RequestsPerSecond: 10_000, Burst: 100_000},
	}
}

// MerchantIn returns a merchant of the bucket.
func MerchantIn(bucket session.Bucket) admission.Request {
	for {
		if asks := Merchant(); session.MerchantBucket(asks.MerchantID) == bucket {
			return asks
		}
	}
}

// ID returns the id of a merchant or of a key.
func ID() string { return strings.ToLower(rand.Text())[:12] }

// Digest returns that of an API key.
func Digest() apikey.Digest { return apikey.NewDigest(rand.Text()) }

// KeyRef names the ApiKey of a merchant's request.
func KeyRef(asks admission.Request) keystate.Ref {
	return keystate.Ref{MerchantID: asks.MerchantID, KeyID: asks.KeyID}
}

// WriteOverride writes an override, unless a newer one is there.
func WriteOverride(t Checker, s *Services, override keystate.Override) {
	t.Helper()
	if err := s.Keys.WriteOverride(t.Context(), override); err != nil && !errors.Is(err, keystate.ErrNewerOverride) {
		t.Fatal(err)
	}
}

// LastUses returns what Redis holds of one ApiKey.
func LastUses(t testing.TB, s *Services, asks admission.Request, known time.Time) (published.DigestUses, keystate.LastUses) {
	t.Helper()
	uses, err := s.Keys.LastUses(t.Context(), session.MerchantBucket(asks.MerchantID), []string{asks.KeyID}, known)
	Must(t, err)
	return uses.Keys[asks.KeyID], uses
}

// Operations are those of a merchant: each must admit in the same way.
var Operations = map[string]func(context.Context, *Services, admission.Request) (admission.Admitted, error){
	"admit": func(ctx context.Context, s *Services, asks admission.Request) (admission.Admitted, error) {
		return s.Admit(ctx, asks)
	},
	"create": func(ctx context.Context, s *Services, asks admission.Request) (admission.Admitted, error) {
		admitted, _, err := s.CreateSession(ctx, asks, NewSession())
		return admitted, err
	},
	"read": func(ctx context.Context, s *Services, asks admission.Request) (admission.Admitted, error) {
		admitted, _, err := s.Session(ctx, asks, session.NewID(asks.MerchantID, false))
		if errors.Is(err, store.ErrNotFound) {
			err = nil // admitted, which is the question here
		}
		return admitted, err
	},
	"cancel": func(ctx context.Context, s *Services, asks admission.Request) (admission.Admitted, error) {
		admitted, _, err := s.Cancel(ctx, asks, session.NewID(asks.MerchantID, false))
		if errors.Is(err, store.ErrNotFound) {
			err = nil
		}
		return admitted, err
	},
	"sessions of an order": func(ctx context.Context, s *Services, asks admission.Request) (admission.Admitted, error) {
		admitted, _, err := s.OrderSessions(ctx, asks, "1001")
		return admitted, err
	},
	"sessions that ended": func(ctx context.Context, s *Services, asks admission.Request) (admission.Admitted, error) {
		admitted, _, err := s.Ended(ctx, asks, store.EndedQuery{Limit: 1})
		return admitted, err
	},
	"events": func(ctx context.Context, s *Services, asks admission.Request) (admission.Admitted, error) {
		admitted, _, err := s.Feed(ctx, asks, feed.Cursor{}, 1)
		return admitted, err
	},
}

// Limited returns a merchant with this limit.
func Limited(limit ratelimit.Policy) admission.Request {
	asks := Merchant()
	asks.Limit = limit
	return asks
}

// Payer returns a payer with a limit no test reaches by accident.
func Payer() store.PublicAdmission {
	return store.PublicAdmission{Subject: "ip:" + ID(), Limit: ratelimit.Policy{RequestsPerSecond: 10_000, Burst: 100_000}}
}

// NewSession returns a session to be created.
func NewSession() store.NewSession {
	return store.NewSession{
		MerchantName: "Acme Coffee",
		Currency:     "EUR",
		Charge:       session.Charge{AmountCents: 1250, OrderRef: "1001"},
		Lifetime:     15 * time.Minute,
	}
}

// MustCreate creates a session.
func MustCreate(t testing.TB, s *Services, asks admission.Request, request store.NewSession) store.Created {
	t.Helper()
	_, created, err := s.CreateSession(t.Context(), asks, request)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// Bank is the rail of Paid and Failed.
var Bank = session.NewRail("system:serviceaccount:rails:bank")

// Paid returns a report on a session of NewSession.
func Paid(ref string) session.Payment {
	return session.Payment{Rail: Bank, Ref: ref, Outcome: session.Completed, AmountCents: 1250}
}

// Failed returns a report on a session of NewSession.
func Failed(ref string) session.Payment {
	return session.Payment{Rail: Bank, Ref: ref, Outcome: session.Failed, AmountCents: 1250, Reason: "no funds"}
}

// Of returns a report with another amount.
func Of(amount int64, p session.Payment) session.Payment {
	p.AmountCents = amount
	return p
}

// RotatedAt is when the first API key of Rotation was issued.
var RotatedAt = time.UnixMilli(1_700_000_000_123).UTC()

// Rotation returns the event of a rotation of the merchant's API key. Each generation is issued a millisecond after the one before.
func Rotation(asks admission.Request, generation int64) feed.Event {
	rotation := feed.KeyRotation{KeyID: asks.KeyID, Prefix: "mk_live_abcd", Generation: generation, Cause: v1alpha1.RotationAPI}
	return feed.NewKeyRotated(asks.MerchantID, "Acme Coffee", rotation, RotatedAt.Add(time.Duration(generation-1)*time.Millisecond))
}

// OpenWith is New with options of the store.
func OpenWith(t testing.TB, url string, options store.Options) *Services {
	t.Helper()
	s := New(t, url)
	s.reopen(t, options)
	return s
}

// reopen opens the store with other options.
func (s *Services) reopen(t testing.TB, options store.Options) {
	t.Helper()
	options.Admitter = s.Admitter
	var err error
	s.Store, err = store.New(s.Client, options)
	Must(t, err)
}

// IdempotencyKey returns one of that text.
func IdempotencyKey(t testing.TB, text string) session.IdempotencyKey {
	t.Helper()
	key, err := session.ParseIdempotencyKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
