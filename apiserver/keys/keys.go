// Package keys replaces API keys, and lets every replica know of each change of a key: the published Secrets at the Kubernetes API, the
// overrides in Redis, and the replicas that compare the two.
package keys

import (
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// The errors of a rotation. After ErrRotationIncomplete the new key is published, but a replica may still accept the old one.
var (
	ErrKubernetes         = errors.New("the Kubernetes API is unavailable")
	ErrNoKey              = errors.New("there is no published key of that id")
	ErrUnreadableKey      = errors.New("the published key cannot be read")
	ErrRotationIncomplete = errors.New("could not write the override of the rotated key")
	ErrRotationUnknown    = errors.New("unknown whether the key was rotated")
)

// Options are those of a Handler.
type Options struct {
	Published  Published
	Store      *store.Store
	Directory  *directory.Directory
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Handler rotates keys: Rotate for the holder of a key, Issue for a Kubernetes account that manages keys.
type Handler struct {
	rotator rotator
	store   *store.Store
	records *recordReads
}

// New returns a Handler.
func New(o Options) *Handler {
	return &Handler{
		rotator: newRotator(o.Published, o.Store, o.Log, o.Registerer), store: o.Store, records: newRecordReads(o.Published, o.Directory),
	}
}
