package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	contract "github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/coalesce"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

var (
	errRotationIncomplete = errors.New("could not write the override of the rotated key")
	errRotationUnknown    = errors.New("unknown whether the key was rotated")
)

// rotationTimeout limits reading and replacing the published key, and on the internal port what is read before that.
const rotationTimeout = 3 * time.Second

// rotationLimit limits the rotations of one ApiKey over all replicas, by its key and on the internal port each. Each one is a write to the
// Kubernetes API, and an event for every replica.
var rotationLimit = ratelimit.Policy{RequestsPerSecond: 1, Burst: 100}

// rotator issues new keys, for both listeners.
type rotator struct {
	keys    publishedKeys
	store   *store.Store
	log     *slog.Logger
	rotated *prometheus.CounterVec // by cause
}

func newRotator(keys publishedKeys, sessions *store.Store, log *slog.Logger, registerer prometheus.Registerer) rotator {
	rotated := promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "merchant_operator_key_rotations_total",
		Help: "API keys issued, by cause of the rotation.",
	}, []string{"cause"})
	rotated.WithLabelValues(string(v1alpha1.RotationAPI)) // start at 0, so that rate() sees the first one
	return rotator{keys: keys, store: sessions, log: log, rotated: rotated}
}

// rotation is how to replace a key.
type rotation struct {
	// permit returns an error unless the published record may be rotated.
	permit func(published.KeyRecord) error
	// at is the time of the rotation, by the clock of Redis: overlaps end by it.
	at time.Time
	// overlap is how long the old key stays valid; 0: all old keys end at once.
	overlap time.Duration
	// actor is who asked for the rotation; empty: unknown.
	actor string
	// deadline is that of the swap; zero: rotationTimeout from its beginning.
	deadline time.Time
}

// rotate replaces a key, and returns the new one with its record. After it every replica refuses what the rotation ends and accepts
// the new key, however late its watch is. The order is: compare-and-swap of the published Secret, so that one of several
// rotations wins; the override, which every request reads; the response. Errors: those of publishedKeys.rotate, and
// errRotationIncomplete.
func (r rotator) rotate(ctx context.Context, keyID string, wanted rotation) (apikey.Key, published.KeyRecord, error) {
	// A client that disconnects must not prevent the override after the swap.
	uncancelled := context.WithoutCancel(ctx)
	if wanted.deadline.IsZero() {
		wanted.deadline = time.Now().Add(rotationTimeout)
	}
	swapping, cancel := context.WithDeadline(uncancelled, wanted.deadline)
	defer cancel()
	key, record, swapErr := r.keys.rotate(swapping, keyID, wanted)
	if record.KeyID == "" {
		return apikey.Key{}, published.KeyRecord{}, swapErr
	}
	if err := r.writeOverride(uncancelled, record); err != nil {
		return apikey.Key{}, published.KeyRecord{}, err
	}
	if swapErr != nil {
		return apikey.Key{}, published.KeyRecord{}, swapErr
	}
	r.rotated.WithLabelValues(string(v1alpha1.RotationAPI)).Inc()
	r.log.Info("rotated an API key", "keyID", record.KeyID, "generation", record.Generation)
	return key, record, nil
}

// writeOverride has every replica know a record. Whoever loses a race writes it too: every replica must refuse the old key before the refusal
// is sent. The error is errRotationIncomplete.
func (r rotator) writeOverride(ctx context.Context, record published.KeyRecord) error {
	err := r.store.WriteOverride(ctx, newOverride(record))
	if err != nil && !errors.Is(err, store.ErrNewerOverride) {
		return fmt.Errorf("%w: %w", errRotationIncomplete, err)
	}
	return nil
}

// generationError is a rotation of another generation than the current one.
type generationError struct{ current, expected int64 }

func (e generationError) Error() string {
	return fmt.Sprintf("the key has generation %d, not %d; nothing was rotated", e.current, e.expected)
}

// Body is that of the response.
func (e generationError) Body() any {
	return contract.Conflict{Error: e.Error(), Generation: e.current}
}

// rotateKey replaces the key of a key id, if it is of the ApiKey in the request and has the expected generation. The caller is not the
// key's holder, so it may also rotate a disabled or expired key.
func (r *internalAPI) rotateKey(e *web.Event, w http.ResponseWriter, request *http.Request) error {
	keyID := request.PathValue("keyID")
	if !published.ValidID(keyID) {
		return errNoKey
	}
	wanted, err := readRotation(w, request)
	if err != nil {
		return err
	}
	wanted.deadline = time.Now().Add(rotationTimeout)
	var key apikey.Key
	var record published.KeyRecord
	if err = r.limitRotation(e, w, request, keyID, &wanted); err == nil {
		if key, record, err = r.rotator.rotate(request.Context(), keyID, wanted); errors.Is(err, errKubernetes) {
			err = fmt.Errorf("%w: %w", errRotationUnknown, err)
		}
	}
	switch {
	case errors.Is(err, errRotationIncomplete):
		return fmt.Errorf("%w: %w", errRotationUnknown, err)
	case err != nil:
		return err
	}
	issued := contract.Issued{KeyID: record.KeyID, Generation: record.Generation, FullKey: key.Reveal(), Prefix: key.Prefix()}
	if len(record.Previous) > 0 {
		issued.PreviousValidUntil = new(record.Previous[0].ValidUntil.UnixMilli())
	}
	return web.Respond(w, http.StatusOK, issued)
}

// limitRotation counts a rotation that the published record permits. The limit is in the bucket of the merchant, which only that record
// names: the key may be newer than this replica's directory. What the record does not permit is not counted there, only its reads are. Redis
// says the time of the rotation.
func (r *internalAPI) limitRotation(e *web.Event, w http.ResponseWriter, request *http.Request, keyID string, wanted *rotation) error {
	ctx, cancel := context.WithDeadline(request.Context(), wanted.deadline)
	defer cancel()
	record, err := r.records.read(ctx, keyID)
	if err != nil {
		return err
	}
	refusal := wanted.permit(record)
	switch conflict := errors.As(refusal, new(generationError)); {
	case conflict && record.Superseded: // rotate refuses it
	case conflict:
		if err := r.rotator.writeOverride(context.WithoutCancel(ctx), record); err != nil {
			return err
		}
		return refusal
	case refusal != nil:
		return refusal
	}
	admitted, err := r.store.LimitIssue(request.Context(), newKeyRef(record), rotationLimit)
	e.SetQuota(w.Header(), web.RotationLimit, admitted.Quota, err)
	if err == nil {
		r.records.refund(keyID)
	}
	wanted.at = admitted.Now
	return err
}

// recordReadLimit limits the requests on the internal port that rotate nothing and have a read of their own: those for one key id, and those
// for all ids that this replica does not know.
var recordReadLimit = ratelimit.Policy{RequestsPerSecond: 10, Burst: 100}

// recordReads limits the reads of published records for the internal port, because whoever may rotate may ask without end. Over the limit of
// a key id, all its requests share reads: none is refused for what another one asks. For an unknown id the directory answers then.
type recordReads struct {
	keys      publishedKeys
	directory *directory.Directory
	limit     *ratelimit.Limiter
	shared    *coalesce.Reads[published.KeyRecord]
}

func newRecordReads(keys publishedKeys, known *directory.Directory) *recordReads {
	return &recordReads{
		keys: keys, directory: known,
		limit: ratelimit.NewLimiter(recordReadLimit, time.Now), shared: coalesce.NewReads[published.KeyRecord](),
	}
}

// read returns the published record of a key id, as it is at the call or later. Errors: those of publishedKeys.read, and that of ctx.
func (k *recordReads) read(ctx context.Context, keyID string) (published.KeyRecord, error) {
	if _, allowed := k.limit.Allow(k.budget(keyID)); allowed {
		_, record, err := k.keys.read(ctx, keyID)
		return record, err
	}
	if !k.directory.HasKey(keyID) {
		return published.KeyRecord{}, errNoKey
	}
	record, err := k.shared.Join(ctx, keyID, func(ctx context.Context) (published.KeyRecord, error) {
		ctx, cancel := context.WithTimeout(ctx, rotationTimeout)
		defer cancel()
		_, record, err := k.keys.read(ctx, keyID)
		return record, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: read key %s: %w", errKubernetes, keyID, err)
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

const (
	namespaceRule  = "must be that of the ApiKey"
	nameRule       = "must be that of the ApiKey"
	uidRule        = "must be metadata.uid of the ApiKey"
	generationRule = "must be the current generation of the key, an integer of at least 1"
	overlapRule    = "must be an integer from 0 to 31536000 (a year); 0 ends all old keys at once"
	actorRule      = "must be 1 to 256 printable characters: who asks for the rotation"

	maxOverlapSeconds  = 31_536_000 // as in the ApiKey's spec
	maxActorCharacters = 256
)

// readRotation reads the body of a rotation. No field has a default: an overlap of 0 stops every till.
func readRotation(w http.ResponseWriter, request *http.Request) (rotation, error) {
	fields, err := web.ReadObject(w, request)
	if err != nil {
		return rotation{}, err
	}
	expected := fields.RequiredInteger("expectedGeneration", generationRule)
	overlap := fields.RequiredInteger("overlapSeconds", overlapRule)
	actor := fields.Text("actor", actorRule)
	source := published.Source{
		Namespace: fields.Text("namespace", namespaceRule),
		Name:      fields.Text("name", nameRule),
		UID:       types.UID(fields.Text("uid", uidRule)),
	}
	switch err := fields.Finish(w.Header(), false); {
	case err != nil:
		return rotation{}, err
	case expected < 1:
		return rotation{}, &session.FieldError{Field: "expectedGeneration", Rule: generationRule}
	case overlap < 0 || overlap > maxOverlapSeconds:
		return rotation{}, &session.FieldError{Field: "overlapSeconds", Rule: overlapRule}
	case !validActor(actor):
		return rotation{}, &session.FieldError{Field: "actor", Rule: actorRule}
	case source.Namespace == "":
		return rotation{}, &session.FieldError{Field: "namespace", Rule: namespaceRule}
	case source.Name == "":
		return rotation{}, &session.FieldError{Field: "name", Rule: nameRule}
	case source.UID == "":
		return rotation{}, &session.FieldError{Field: "uid", Rule: uidRule}
	}
	return rotation{
		permit: func(record published.KeyRecord) error {
			if record.Source != source { // a key id is public: the caller may have been given another one
				return errNoKey
			}
			if record.Generation != expected {
				return generationError{current: record.Generation, expected: expected}
			}
			return nil
		},
		overlap: time.Duration(overlap) * time.Second,
		actor:   actor,
	}, nil
}

// validActor refuses what could deceive a reader: control characters, invisible ones, other directions of writing.
func validActor(actor string) bool {
	return actor != "" && utf8.RuneCountInString(actor) <= maxActorCharacters && strings.TrimSpace(actor) == actor &&
		!strings.ContainsFunc(actor, func(c rune) bool { return !unicode.IsPrint(c) })
}
