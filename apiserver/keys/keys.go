// Package keys replaces API keys, shows new signing secrets, and lets every replica know of each change of a key: the published Secrets at the Kubernetes API, the
// overrides in Redis, and the replicas that compare the two.
package keys

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver/coalesce"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
)

// Options are those of a Handler.
type Options struct {
	Published  Published
	Admitter   *admission.Admitter
	Overrides  *keystate.Store
	Directory  *directory.Directory
	Log        *slog.Logger
	Registerer prometheus.Registerer
	Now        func() time.Time
}

// Handler rotates keys: Rotate for the holder of a key, RotateFor for a Kubernetes account that manages keys, to which ShowSigningSecret shows new
// signing secrets.
type Handler struct {
	rotator   rotator
	admitter  *admission.Admitter
	directory *directory.Directory
	records   *recordReads
	signing   *coalesce.Reads[published.WebhookRecord]
	now       func() time.Time
}

// New returns a Handler.
func New(o Options) *Handler {
	return &Handler{
		rotator: newRotator(o.Published, o.Overrides, o.Log, o.Registerer), admitter: o.Admitter, directory: o.Directory,
		records: newRecordReads(o.Published, o.Directory), signing: coalesce.NewReads[published.WebhookRecord](), now: o.Now,
	}
}
