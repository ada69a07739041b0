// Package edit changes the fields of a Merchant's spec, from a form that a person has seen.
package edit

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/objects"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// Form is what all forms that change a Merchant have.
type Form struct {
	Merchant *v1alpha1.Merchant
	// Generation is the generation of the Merchant whose fields the person has seen.
	Generation int64
	// Error is why the form was refused.
	Error string
}

// NewForm returns a form before it was sent, or as it was sent.
func NewForm(r *web.Request) Form {
	form := Form{Merchant: r.Merchant, Generation: r.Merchant.Generation}
	if r.Method == http.MethodPost {
		form.Generation, _ = strconv.ParseInt(r.PostFormValue("generation"), 10, 64) // no Merchant has the generation 0
	}
	return form
}

// Editor changes Merchants. It is safe for concurrent use.
type Editor struct {
	Objects *objects.Client
	Audit   *audit.Recorder
	Pages   *web.Pages
}

// Change changes the Merchant until ctx ends, and records the action. If the form is refused, its Error says why, and it is to be shown again. The
// API server checks the fields: there is one rule for the console and for kubectl.
func (e *Editor) Change(ctx context.Context, r *web.Request, form *Form, action string, change func(*v1alpha1.Merchant)) (done bool, err error) {
	words := e.Pages.Words(ctx)
	refuse := func(message string) (bool, error) {
		form.Error, form.Generation = message, r.Merchant.Generation
		return false, nil
	}
	if form.Generation != r.Merchant.Generation {
		return refuse(words.Text("form.changed"))
	}
	changed, err := e.patch(ctx, r.Merchant, change)
	e.Audit.Record(ctx, audit.Entry{Viewer: r.Viewer, Action: action, Object: r.Merchant, ID: published.ID(r.Merchant.UID), Generation: changed.Generation, Err: err})
	reason, refused := objects.RefusedReason(words, err)
	switch {
	case refused:
		return refuse(reason)
	case apierrors.IsConflict(err):
		return refuse(words.Text("form.changed"))
	case err != nil:
		return false, objects.Error(action+" of a Merchant", err)
	}
	return true, nil
}

// patch changes a Merchant that still has this generation. Only its spec counts: another writer of its status is no conflict.
func (e *Editor) patch(ctx context.Context, seen *v1alpha1.Merchant, change func(*v1alpha1.Merchant)) (*v1alpha1.Merchant, error) {
	latest := seen
	for {
		changed := latest.DeepCopy()
		change(changed)
		err := e.Objects.Patch(ctx, changed, client.MergeFromWithOptions(latest, client.MergeFromWithOptimisticLock{}), client.FieldOwner(objects.FieldOwner))
		if !apierrors.IsConflict(err) {
			return changed, err
		}
		latest = new(v1alpha1.Merchant)
		if err := e.Objects.Get(ctx, client.ObjectKeyFromObject(seen), latest); err != nil {
			// The conflict may be with this change, so a refused read (an APIStatus) must not pass for a refused change.
			return seen, errors.New("read the Merchant after a conflict: " + err.Error())
		}
		again := latest.DeepCopy()
		change(again)
		switch {
		case latest.UID != seen.UID:
			return seen, err
		case equality.Semantic.DeepEqual(again.Spec, latest.Spec): // client-go sends a request again whose answer was lost
			return latest, nil
		case latest.Generation != seen.Generation:
			return seen, err
		}
	}
}
