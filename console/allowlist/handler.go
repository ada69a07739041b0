// Package allowlist shows a merchant's people from where its API keys are accepted, and changes that.
package allowlist

import (
	"context"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/edit"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
)

// Options configure a Handler. All are required.
type Options struct {
	Editor Editor
	Pages  *web.Pages
	// Clients resolves the viewer's own address.
	Clients clientaddr.Resolver
}

// Editor changes Merchants: an edit.Editor, which says what Change does.
type Editor interface {
	Change(ctx context.Context, r *web.Request, form *edit.Form, action string, change func(*v1alpha1.Merchant)) (done bool, err error)
}

// Handler handles requests about allowlists. It is safe for concurrent use.
type Handler struct {
	Options
}

// New returns a Handler.
func New(options Options) *Handler { return &Handler{options} }
