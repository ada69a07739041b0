package keys

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	contract "github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// GenerationError is a rotation of another generation than the current one.
type GenerationError struct{ current, expected int64 }

func (e GenerationError) Error() string {
	return fmt.Sprintf("the key has generation %d, not %d; nothing was rotated", e.current, e.expected)
}

// Body is that of the response.
func (e GenerationError) Body() any {
	return contract.Conflict{Error: e.Error(), Generation: e.current}
}

// RotateFor replaces the key of a key id, if it is of the ApiKey in the request and has the expected generation. The caller is not the
// key's holder, so it may also rotate a disabled or expired key.
func (h *Handler) RotateFor(e *web.Event, w http.ResponseWriter, r *http.Request, account string) error {
	keyID := r.PathValue("keyID")
	if !published.ValidID(keyID) {
		return ErrNoKey
	}
	change, err := decodeRotation(w, r)
	if err != nil {
		return err
	}
	change.origin.By, change.origin.Account, change.origin.RequestID = auditlog.Person, account, e.RequestID()
	change.deadline = time.Now().Add(rotationTimeout)
	var key apikey.Key
	var record published.KeyRecord
	if err = h.limitIssue(e, w, r, keyID, &change); err == nil {
		if key, record, err = h.rotator.rotate(r.Context(), keyID, change); errors.Is(err, ErrKubernetes) {
			err = fmt.Errorf("%w: %w", ErrRotationUnknown, err)
		}
	}
	switch {
	case errors.Is(err, ErrRotationIncomplete):
		return fmt.Errorf("%w: %w", ErrRotationUnknown, err)
	case err != nil:
		return err
	}
	issued := contract.Issued{KeyID: record.KeyID, Generation: record.Generation, FullKey: key.Reveal(), Prefix: key.Prefix()}
	if len(record.Previous) > 0 {
		issued.PreviousValidUntil = new(record.Previous[0].ValidUntil.UnixMilli())
	}
	return web.Respond(w, http.StatusOK, issued)
}

// limitIssue counts a rotation that the published record permits. The limit is in the bucket of the merchant, which only that record
// names: the key may be newer than this replica's directory. What the record does not permit is not counted there, only its reads are. Redis
// says the time of the rotation.
func (h *Handler) limitIssue(e *web.Event, w http.ResponseWriter, r *http.Request, keyID string, change *rotation) error {
	ctx, cancel := context.WithDeadline(r.Context(), change.deadline)
	defer cancel()
	record, err := h.records.read(ctx, keyID)
	if err != nil {
		return err
	}
	denied := change.permit(record)
	switch conflict := errors.As(denied, new(GenerationError)); {
	case conflict && record.Superseded: // rotate refuses it
	case conflict:
		if err := h.rotator.writeOverride(context.WithoutCancel(ctx), record); err != nil {
			return err
		}
		return denied
	case denied != nil:
		return denied
	}
	admitted, err := h.admitter.LimitIssue(r.Context(), newKeyRef(record), rotationLimit)
	e.SetQuota(w.Header(), web.RotationLimit, admitted.Quota, err)
	if err == nil {
		h.records.refund(keyID)
	}
	change.at = admitted.Now
	return err
}

const (
	namespaceRule  = "must be that of the ApiKey"
	nameRule       = "must be that of the ApiKey"
	uidRule        = "must be metadata.uid of the ApiKey"
	generationRule = "must be the current generation of the key, an integer of at least 1"
	overlapRule    = "must be an integer from 0 to 31536000 (a year); 0 ends all old keys at once"
	actorRule      = "must be 1 to 256 printable characters: who asks for the rotation"

	maxActorCharacters = 256
)

// decodeRotation reads the body of a rotation. No field has a default: an overlap of 0 stops every till.
func decodeRotation(w http.ResponseWriter, r *http.Request) (rotation, error) {
	fields, err := web.ReadObject(w, r)
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
	case overlap < 0 || overlap > v1alpha1.MaxOverlapSeconds:
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
				return ErrNoKey
			}
			if record.Generation != expected {
				return GenerationError{current: record.Generation, expected: expected}
			}
			return nil
		},
		overlap: time.Duration(overlap) * time.Second,
		origin:  auditlog.Origin{Actor: actor},
	}, nil
}

// validActor refuses what could deceive a reader: control characters, invisible ones, other directions of writing.
func validActor(actor string) bool {
	return actor != "" && utf8.RuneCountInString(actor) <= maxActorCharacters && strings.TrimSpace(actor) == actor &&
		!strings.ContainsFunc(actor, func(c rune) bool { return !unicode.IsPrint(c) })
}
