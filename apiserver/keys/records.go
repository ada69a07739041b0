package keys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver/coalesce"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
)

// recordReadLimit limits the requests on the internal port that rotate nothing and have a read of their own: those for one key id, and those
// for all ids that this replica does not know.
var recordReadLimit = ratelimit.Policy{RequestsPerSecond: 10, Burst: 100}

// recordReads limits the reads of published records for the internal port, because a caller with the right may ask without end. Over the limit of
// a key id, all its requests share reads: none is refused for what another one asks. For an unknown id the directory answers then.
type recordReads struct {
	keys      Published
	directory *directory.Directory
	limit     *ratelimit.Limiter
	shared    *coalesce.Reads[published.KeyRecord]
}

func newRecordReads(keys Published, known *directory.Directory) *recordReads {
	return &recordReads{
		keys: keys, directory: known,
		limit: ratelimit.NewLimiter(recordReadLimit, time.Now), shared: coalesce.NewReads[published.KeyRecord](),
	}
}

// read returns the published record of a key id, as it is at the call or later. Errors: those of Published.read, and that of ctx.
func (k *recordReads) read(ctx context.Context, keyID string) (published.KeyRecord, error) {
	if _, allowed := k.limit.Allow(k.budget(keyID)); allowed {
		_, record, err := k.keys.read(ctx, keyID)
		return record, err
	}
	if !k.directory.HasKey(keyID) {
		return published.KeyRecord{}, ErrNoKey
	}
	record, err := k.shared.Join(ctx, keyID, func(ctx context.Context) (published.KeyRecord, error) {
		ctx, cancel := context.WithTimeout(ctx, rotationTimeout)
		defer cancel()
		_, record, err := k.keys.read(ctx, keyID)
		return record, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: read key %s: %w", ErrKubernetes, keyID, err)
	}
	return record, err
}

// refund reverts the charge of a request that is counted as a rotation.
func (k *recordReads) refund(keyID string) { k.limit.Refund(k.budget(keyID)) }

// budget names that of a key id; empty: the one of all unknown ids.
func (k *recordReads) budget(keyID string) string {
	if k.directory.HasKey(keyID) {
		return keyID
	}
	return ""
}
