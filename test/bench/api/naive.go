package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

const (
	lifetime    = 15 * time.Minute
	retention   = 72 * time.Hour
	idempotency = 24 * time.Hour
)

// naiveService creates sessions in the obvious way: correct for one request at a time, one round trip to Redis for each step, a client
// with its defaults. It is only for comparison.
type naiveService struct {
	redis *redis.Client
	limit *redis_rate.Limiter
}

func newNaiveService(address string) *naiveService {
	client := redis.NewClient(&redis.Options{Addr: address})
	return &naiveService{client, redis_rate.NewLimiter(client)}
}

type naiveMerchant struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// registerNaive registers an API key in the naive service.
func registerNaive(ctx context.Context, client redis.Cmdable, key, merchantName string) error {
	record, err := json.Marshal(naiveMerchant{"naive", merchantName})
	if err != nil {
		return err
	}
	return client.Set(ctx, naiveKey(key), record, 0).Err()
}

func naiveKey(key string) string {
	digest := sha256.Sum256([]byte(key))
	return "naive:key:" + hex.EncodeToString(digest[:])
}

type naiveCharge struct {
	AmountCents int64  `json:"amountCents"`
	OrderRef    string `json:"orderRef"`
	TaxCents    int64  `json:"taxCents"`
	TipCents    int64  `json:"tipCents"`
}

type naiveSession struct {
	SessionID  string `json:"sessionId"`
	Status     string `json:"status"`
	ExpiresAt  int64  `json:"expiresAt"`
	QRPayload  string `json:"qrPayload"`
	Idempotent bool   `json:"idempotent"`
}

func (s *naiveService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	created, status := s.create(r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(created) //nolint:errchkjson // strings and numbers
}

// create creates a session, in six round trips.
func (s *naiveService) create(r *http.Request) (created naiveSession, status int) {
	ctx := r.Context()
	record, err := s.redis.Get(ctx, naiveKey(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))).Bytes()
	if err != nil {
		return created, http.StatusUnauthorized
	}
	var from naiveMerchant
	if err := json.Unmarshal(record, &from); err != nil {
		return created, http.StatusInternalServerError
	}
	allowed, err := s.limit.Allow(ctx, from.ID, redis_rate.PerSecond(fixture.UnlimitedRate))
	if err != nil || allowed.Allowed == 0 {
		return created, http.StatusTooManyRequests
	}
	var charge naiveCharge
	if err := json.NewDecoder(r.Body).Decode(&charge); err != nil || charge.AmountCents <= 0 {
		return created, http.StatusBadRequest
	}
	id := "ps_" + rand.Text()
	once := r.Header.Get("Idempotency-Key")
	if once == "" {
		once = id
	}
	if first, err := s.redis.SetNX(ctx, "naive:idem:"+from.ID+":"+once, id, idempotency).Result(); err != nil || !first {
		return created, http.StatusInternalServerError // a replay is not measured
	}
	now := time.Now()
	expires := now.Add(lifetime)
	session := "naive:session:" + id
	setErr := s.redis.HSet(ctx, session,
		"status", "PENDING", "createdAt", now.UnixMilli(), "expiresAt", expires.UnixMilli(), "merchantId", from.ID, "merchantName", from.Name,
		"amountCents", charge.AmountCents, "orderRef", charge.OrderRef, "taxCents", charge.TaxCents, "tipCents", charge.TipCents,
	).Err()
	expireErr := s.redis.PExpire(ctx, session, lifetime+retention).Err()
	addErr := s.redis.XAdd(ctx, &redis.XAddArgs{
		Stream: "naive:events", Values: []any{"kind", "session.created", "session", id, "merchant", from.ID},
	}).Err()
	if errors.Join(setErr, expireErr, addErr) != nil {
		return created, http.StatusInternalServerError
	}
	return naiveSession{id, "PENDING", expires.UnixMilli(), "pay://qr/" + id, false}, http.StatusCreated
}
