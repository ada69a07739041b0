package keys

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	contract "github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Errors of a request for a signing secret.
var (
	ErrNoSigningSecret         = errors.New("there is no new signing secret for this nonce")
	ErrUnreadableSigningSecret = errors.New("the published signing secret cannot be read")
)

// signingWindow is how long after its rotation a signing secret is shown.
const signingWindow = 2 * time.Minute

const (
	merchantRule = "must be that of the Merchant"
	nonceRule    = "must be 22 to 128 characters: what spec.webhook.rotationTrigger is the digest of"

	minNonce, maxNonce = 22, 128 // 22 characters of base64 are 128 bits
)

// ShowSigningSecret answers with a signing secret to who has rotated it: its trigger is the digest of the nonce in the request. So another
// reader of the Merchant, or of an older request, gets nothing. What does not fit is always the same 404.
func (h *Handler) ShowSigningSecret(e *web.Event, w http.ResponseWriter, r *http.Request, account string) error {
	merchantID := r.PathValue("merchantID")
	if !published.ValidID(merchantID) {
		return ErrNoSigningSecret
	}
	request, err := decodeSigning(w, r)
	if err != nil {
		return err
	}
	record, err := h.readSigning(r.Context(), merchantID)
	if err != nil {
		return err
	}
	age := h.now().Sub(record.Current.CreatedAt)
	if record.Source != (published.Source{Namespace: request.Namespace, Name: request.Name, UID: request.UID}) ||
		record.HandledTrigger != contract.SigningTrigger(request.Nonce) || age.Abs() > signingWindow {
		return ErrNoSigningSecret
	}
	line := auditlog.AboutSigning(record, auditlog.Person)
	line.Account, line.Actor, line.RequestID, line.ChangedAt = account, request.Actor, e.RequestID(), record.Current.CreatedAt
	h.rotator.audit.Write(r.Context(), line)
	shown := contract.SigningSecret{Secret: record.Current.Secret.Reveal()}
	if signing := record.RetiredAt(h.now()); len(signing) > 0 {
		shown.PreviousValidUntil = new(signing[0].ValidUntil.UnixMilli())
	}
	return web.Respond(w, http.StatusOK, shown)
}

// readSigning returns the published signing secret of a merchant, as it is at the call or later. All requests about one merchant share reads,
// because who waits for the operator asks again and again; a merchant that the directory does not know costs none.
func (h *Handler) readSigning(ctx context.Context, merchantID string) (published.WebhookRecord, error) {
	if h.directory.Merchant(merchantID) == nil {
		return published.WebhookRecord{}, ErrNoSigningSecret
	}
	record, err := h.signing.Join(ctx, merchantID, func(ctx context.Context) (published.WebhookRecord, error) {
		ctx, cancel := context.WithTimeout(ctx, rotationTimeout)
		defer cancel()
		return h.rotator.keys.readSigning(ctx, merchantID)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: read the signing secret of merchant %s: %w", ErrKubernetes, merchantID, err)
	}
	return record, err
}

// readSigning returns the record of a published signing secret. Errors: ErrNoSigningSecret, ErrUnreadableSigningSecret, ErrKubernetes.
func (p Published) readSigning(ctx context.Context, merchantID string) (published.WebhookRecord, error) {
	secret, err := p.Secrets.Get(ctx, published.WebhookName(merchantID), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return published.WebhookRecord{}, ErrNoSigningSecret
	case err != nil:
		return published.WebhookRecord{}, fmt.Errorf("%w: read the signing secret of merchant %s: %w", ErrKubernetes, merchantID, err)
	}
	record, err := published.DecodeWebhook(secret)
	if err != nil {
		return published.WebhookRecord{}, fmt.Errorf("%w: merchant %s: %w", ErrUnreadableSigningSecret, merchantID, err)
	}
	return record, nil
}

func decodeSigning(w http.ResponseWriter, r *http.Request) (contract.SigningRequest, error) {
	fields, err := web.ReadObject(w, r)
	if err != nil {
		return contract.SigningRequest{}, err
	}
	request := contract.SigningRequest{
		Namespace: fields.Text("namespace", merchantRule), Name: fields.Text("name", merchantRule), UID: types.UID(fields.Text("uid", merchantRule)),
		Nonce: fields.Text("nonce", nonceRule), Actor: fields.Text("actor", actorRule),
	}
	err = fields.Finish(w.Header(), false)
	switch length := utf8.RuneCountInString(request.Nonce); {
	case err != nil:
		return request, err
	case request.Namespace == "":
		return request, &session.FieldError{Field: "namespace", Rule: merchantRule}
	case request.Name == "":
		return request, &session.FieldError{Field: "name", Rule: merchantRule}
	case request.UID == "":
		return request, &session.FieldError{Field: "uid", Rule: merchantRule}
	case length < minNonce || length > maxNonce:
		return request, &session.FieldError{Field: "nonce", Rule: nonceRule}
	case !validActor(request.Actor):
		return request, &session.FieldError{Field: "actor", Rule: actorRule}
	}
	return request, nil
}
