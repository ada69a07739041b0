package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// redisFixture records what was written, or fails.
type redisFixture struct {
	written []string
	tries   int
	failure error
}

func (r *redisFixture) write(_ context.Context, override store.Override) error {
	r.tries++
	if r.failure != nil {
		return r.failure
	}
	r.written = append(r.written, fmt.Sprintf("%s@%d accepts %d", override.KeyID, override.Order.Revision, len(override.Accepted)))
	return nil
}

func newOverrideFixture() (*overrideWriter, *redisFixture, *strings.Builder) {
	redis, log := &redisFixture{}, &strings.Builder{}
	return &overrideWriter{
		write:    redis.write,
		verifier: &recordVerifier{pending: map[store.KeyRef]published.Order{}},
		now:      func() time.Time { return time.Unix(1_800_000_000, 0) },
		log:      slog.New(slog.NewTextHandler(log, nil)),
		pending:  map[store.KeyRef]store.Override{},
	}, redis, log
}

func revised(keyID string, revision int64) published.KeyRecord {
	return published.KeyRecord{
		MerchantID: "merchant2345", KeyID: keyID, Revision: revision,
		State: v1alpha1.ApiKeyActive, Current: published.Current{Digest: apikey.DigestOf(keyID)},
	}
}

func TestChangesReachRedisAtOnce(t *testing.T) {
	a, redis, _ := newOverrideFixture()
	a.KeyUpdated(revised("till", 2))
	disabled := revised("till", 3)
	disabled.State = v1alpha1.ApiKeyDisabled
	a.KeyUpdated(disabled)
	a.KeyRevoked(revised("till", 3))
	if diff := cmp.Diff([]string{"till@2 accepts 1", "till@3 accepts 0", "till@3 accepts 0"}, redis.written); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}

func TestChangesOutlastAnOutageOfRedis(t *testing.T) {
	a, redis, _ := newOverrideFixture()
	redis.failure = fmt.Errorf("%w: refused", store.ErrUnavailable)
	a.KeyUpdated(revised("till", 2))
	for revision := range int64(1000) {
		a.KeyUpdated(revised("web", revision))
	}
	a.KeyRevoked(revised("till", 2))
	if redis.tries != 1 {
		t.Errorf("%d tries while Redis is away, want 1: each holds up the watch for a time-out", redis.tries)
	}
	a.retryPending(t.Context())
	redis.failure = nil
	a.retryPending(t.Context())
	a.retryPending(t.Context())
	got := map[string]bool{}
	for _, text := range redis.written {
		got[text] = true
	}
	if diff := cmp.Diff(map[string]bool{"till@2 accepts 0": true, "web@999 accepts 1": true}, got); diff != "" || len(redis.written) != 2 {
		t.Errorf("written when Redis is back, %v: the newest of each key once (-want +got):\n%s", redis.written, diff)
	}
	a.KeyUpdated(revised("till", 3))
	if len(redis.written) != 3 {
		t.Error("changes do not reach Redis at once again")
	}
}

func TestAnUnreadableOverrideIsLoggedAndNotRetried(t *testing.T) {
	a, redis, log := newOverrideFixture()
	redis.failure = errors.Join(store.ErrCorrupt)
	a.KeyUpdated(revised("till", 2))
	a.retryPending(t.Context())
	if redis.tries != 1 || !strings.Contains(log.String(), "keyID=till") {
		t.Errorf("%d tries, want 1; logged %q", redis.tries, log)
	}
}
