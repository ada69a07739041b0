package keys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

var (
	// ErrRotationIncomplete means that the new key is published, but a replica may still accept the old one.
	ErrRotationIncomplete = errors.New("could not write the override of the rotated key")
	// ErrRotationUnknown means that the key may have been replaced. To send the same request again is safe.
	ErrRotationUnknown = errors.New("unknown whether the key was rotated")
)

// rotationLimit limits the rotations of one ApiKey over all replicas, by its key and on the internal port each. Each one is a write to the
// Kubernetes API, and an event for every replica.
var rotationLimit = ratelimit.Policy{RequestsPerSecond: 1, Burst: 100}

// rotator issues new keys, for both listeners.
type rotator struct {
	keys      Published
	overrides *keystate.Store
	audit     auditlog.Log
	rotated   *prometheus.CounterVec // by cause
}

func newRotator(keys Published, overrides *keystate.Store, log *slog.Logger, registerer prometheus.Registerer) rotator {
	rotated := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_key_rotations_total",
		Help: "API keys issued, by cause of the rotation.",
	}, []string{"cause"})
	rotated.WithLabelValues(string(v1alpha1.RotationAPI)) // start at 0, so that rate() sees the first one
	return rotator{keys: keys, overrides: overrides, audit: auditlog.New(log), rotated: rotated}
}

// rotate replaces a key, and returns the new one with its record. After it every replica refuses what the rotation ends and accepts
// the new key, however late its watch is. The order is: compare-and-swap of the published Secret, so that one of several
// rotations wins; the entry of the audit log; the override, which every request reads; the response. Errors: those of Published.rotate, and
// ErrRotationIncomplete.
func (r rotator) rotate(ctx context.Context, keyID string, change rotation) (apikey.Key, published.KeyRecord, error) {
	// A client that disconnects must not prevent the override after the swap.
	uncancelled := context.WithoutCancel(ctx)
	if change.deadline.IsZero() {
		change.deadline = time.Now().Add(rotationTimeout)
	}
	swapping, cancel := context.WithDeadline(uncancelled, change.deadline)
	defer cancel()
	key, record, swapErr := r.keys.rotate(swapping, keyID, change)
	if record.KeyID == "" {
		return apikey.Key{}, published.KeyRecord{}, swapErr
	}
	if swapErr == nil {
		for _, line := range auditlog.Rotation(record) {
			line.Origin = change.origin
			r.audit.Write(uncancelled, line)
		}
	}
	if err := r.writeOverride(uncancelled, record); err != nil {
		return apikey.Key{}, published.KeyRecord{}, err
	}
	if swapErr != nil {
		return apikey.Key{}, published.KeyRecord{}, swapErr
	}
	r.rotated.WithLabelValues(string(v1alpha1.RotationAPI)).Inc()
	return key, record, nil
}

// writeOverride has every replica know a record. The loser of a race writes it too: every replica must refuse the old key before that 401
// is sent. The error is ErrRotationIncomplete.
func (r rotator) writeOverride(ctx context.Context, record published.KeyRecord) error {
	err := r.overrides.WriteOverride(ctx, newOverride(record))
	if err != nil && !errors.Is(err, keystate.ErrNewerOverride) {
		return fmt.Errorf("%w: %w", ErrRotationIncomplete, err)
	}
	return nil
}
