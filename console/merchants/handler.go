// Package merchants shows a person the Merchants that they may see: the list, with what needs attention and what was paid today, and Integrations:
// the keys, allowlist, webhook and recent Events of one. It only reads.
package merchants

import (
	"context"
	"html/template"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/allowlist"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/console/webhook"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Options configure a Handler. All but APIURL are required. The other rooms are what the page of a Merchant shows of them.
type Options struct {
	Objects   Objects
	Rights    Rights
	Keys      Keys
	Allowlist Allowlist
	Webhook   Webhook
	Payments  Payments
	Pages     *web.Pages
	// APIURL is the origin of the payment API, for the examples that people copy.
	APIURL string
}

// Objects reads Merchants, ApiKeys and Events: an objects.Client, which says what each method does.
type Objects interface {
	KnownMerchants(ctx context.Context) ([]v1alpha1.Merchant, error)
	AllKnownKeys(ctx context.Context) ([]v1alpha1.ApiKey, error)
	client.Reader
}

// Rights says what a person may do: a rights.Reviewer, which says what each method does.
type Rights interface {
	Read(ctx context.Context, person login.Person, merchant *v1alpha1.Merchant) (rights.Rights, error)
	Visible(ctx context.Context, person login.Person, all []*v1alpha1.Merchant) (seen []*v1alpha1.Merchant, incomplete bool, err error)
	PaymentsVisible(ctx context.Context, person login.Person, merchants []*v1alpha1.Merchant, total int) ([]bool, error)
}

// Keys is the room of keys: a keys.Handler.
type Keys interface {
	List(ctx context.Context, merchant *v1alpha1.Merchant) (keys.List, error)
}

// Allowlist is the room of the allowlist: an allowlist.Handler.
type Allowlist interface {
	Check(r *web.Request, keys []*v1alpha1.ApiKey) (allowlist.Check, error)
}

// Webhook is the room of webhooks: a webhook.Handler, which says what each method does.
type Webhook interface {
	ReadHealth(ctx context.Context, merchant *v1alpha1.Merchant) (webhook.Health, error)
	ReadStates(ctx context.Context, merchants []*v1alpha1.Merchant) (map[string]outbox.EndpointState, error)
	ListDeadLetters(ctx context.Context, merchant *v1alpha1.Merchant, limit int) ([]webhook.DeadLetter, error)
	ReadAttempts(ctx context.Context, merchant *v1alpha1.Merchant) ([]webhook.Attempt, error)
}

// Payments is the room of payments: a payments.Handler, which says what each method does.
type Payments interface {
	OverdueRefunds(ctx context.Context, merchant *v1alpha1.Merchant) (store.Overdue, error)
	Any(ctx context.Context, merchant *v1alpha1.Merchant) (bool, error)
	PaidToday(ctx context.Context, merchants []*v1alpha1.Merchant) ([]template.HTML, error)
}

// Handler handles requests about Merchants. It is safe for concurrent use.
type Handler struct {
	Options
}

// New returns a Handler.
func New(options Options) *Handler { return &Handler{options} }
