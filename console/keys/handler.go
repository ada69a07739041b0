// Package keys shows a merchant's people the merchant's ApiKeys, and creates, rotates, disables, enables and deletes them.
package keys

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// Options configure a Handler. All but ForceTimeout are required.
type Options struct {
	Objects Objects
	Issuer  Issuer
	Audit   Recorder
	Pages   *web.Pages
	// Waits bounds the pages that wait for somebody else.
	Waits *web.Inflight
	Log   *slog.Logger
	// ForceTimeout is how long the answer to an action waits until the action is in force, which takes a moment mostly. Pages say later whether
	// it is. Default 5 s.
	ForceTimeout time.Duration
}

// Objects reads and writes ApiKeys: an objects.Client, which says what each method does.
type Objects interface {
	KnownKeys(ctx context.Context, merchant *v1alpha1.Merchant) ([]v1alpha1.ApiKey, error)
	ReadKey(ctx context.Context, merchant *v1alpha1.Merchant, name string) (*v1alpha1.ApiKey, error)
	client.Writer
}

// Issuer makes keys, and knows which ones are accepted: an issuer.Client, which says what each method does.
type Issuer interface {
	Rotate(ctx context.Context, key *v1alpha1.ApiKey, generation int64, overlap time.Duration, actor string) (rotation.Issued, error)
	Accepted(ctx context.Context, merchant types.UID, keys []types.UID) (issuer.Acceptance, error)
}

// Recorder records actions: an audit.Recorder.
type Recorder interface {
	Record(ctx context.Context, entry audit.Entry)
}

// Handler handles requests about ApiKeys. It is safe for concurrent use.
type Handler struct {
	Options
}

// New returns a Handler.
func New(options Options) *Handler {
	const forceTimeout = 5 * time.Second
	options.ForceTimeout = cmp.Or(options.ForceTimeout, forceTimeout)
	return &Handler{options}
}
