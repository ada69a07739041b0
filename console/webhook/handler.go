// Package webhook shows a merchant's people how the endpoint of the merchant is, and changes it: its URL and events, its signing secret, dead
// letters that are sent again, and test events.
package webhook

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/edit"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Options configure a Handler. All but AnswerTimeout are required.
type Options struct {
	Outbox Outbox
	Editor Editor
	Issuer Issuer
	Rights Rights
	Audit  Recorder
	Pages  *web.Pages
	// Waits bounds the pages that wait for somebody else.
	Waits *web.Inflight
	// AnswerTimeout is how long a page waits for the answer to a test event, or for a new signing secret. Default 18 s: an attempt ends after 15 s,
	// and a request takes at most web.RequestTimeout.
	AnswerTimeout time.Duration
}

// Outbox has events and endpoints: an outbox.Outbox, which says what each method does.
type Outbox interface {
	Endpoints(ctx context.Context, bucket session.Bucket, merchantIDs ...string) (outbox.Endpoints, error)
	Attempts(ctx context.Context, merchantID string, now time.Time) (outbox.Attempts, error)
	DeadLetters(ctx context.Context, filter outbox.DeadLetterFilter) ([]outbox.DeadLetter, error)
	Resend(ctx context.Context, request outbox.ResendRequest) (outbox.Resent, error)
	ResumeEndpoint(ctx context.Context, merchantID string, target outbox.Target) (bool, error)
	SendWebhookTest(ctx context.Context, event feed.Event) (bool, error)
}

// Editor changes Merchants: an edit.Editor, which says what Change does.
type Editor interface {
	Change(ctx context.Context, r *web.Request, form *edit.Form, action string, change func(*v1alpha1.Merchant)) (done bool, err error)
}

// Issuer shows new signing secrets: an issuer.Client, which says what the method does.
type Issuer interface {
	SigningSecret(ctx context.Context, merchant *v1alpha1.Merchant, nonce, actor string) (rotation.SigningSecret, error)
}

// Rights says what a person may do: a rights.Reviewer.
type Rights interface {
	Read(ctx context.Context, person login.Person, merchant *v1alpha1.Merchant) (rights.Rights, error)
}

// Recorder records actions: an audit.Recorder.
type Recorder interface {
	Record(ctx context.Context, entry audit.Entry)
}

// Handler handles requests about webhooks. It is safe for concurrent use.
type Handler struct {
	Options

	answers singleflight.Group // waits for the answer to a test event, by merchant id
}

// New returns a Handler.
func New(options Options) *Handler {
	const answerTimeout = 18 * time.Second
	options.AnswerTimeout = cmp.Or(options.AnswerTimeout, answerTimeout)
	return &Handler{Options: options}
}
