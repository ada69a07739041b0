package console

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// editForm is a page with the fields of a Merchant that the console may change.
type editForm struct {
	page     string // template
	action   string
	Merchant *v1alpha1.Merchant
	// Generation is that of the Merchant whose fields the person has seen.
	Generation int64
	Error      string

	Allowlist string // one entry a line
	// Added is the block that the form adds to the allowlist; empty: none.
	Added string
	// ShutOut is the viewer's own address, if the new allowlist refuses it and that was not confirmed.
	ShutOut string

	URL    string
	Events []eventChoice
	// Waiting is how many events wait for delivery to the webhook.
	Waiting int64
	// Removing: the form removes the URL, and that was not confirmed.
	Removing bool

	// SafeSecrets is how many new signing secrets in a row leave the first one valid for its overlap.
	SafeSecrets int
}

// newEditForm returns the form of a page, before it was sent or as it was sent.
func newEditForm(r *web.Request, page, action string) editForm {
	form := editForm{page: page, action: action, Merchant: r.Merchant, Generation: r.Merchant.Generation}
	if r.Method == http.MethodPost {
		form.Generation, _ = strconv.ParseInt(r.PostFormValue("generation"), 10, 64) // no Merchant has the generation 0
	}
	return form
}

type eventChoice struct {
	Kind   v1alpha1.WebhookEvent
	Chosen bool
}

// gitManagedError means that a GitOps tool would undo the change.
type gitManagedError struct {
	owner  gitops.Manager
	object string
}

// Error says what to change instead.
func (e *gitManagedError) Error() string {
	return fmt.Sprintf("%s is managed by %s. Change it in Git: %s %s.", e.object, e.owner.Tool, e.owner.Tool, e.owner.Source)
}

func (c *console) renderEditForm(w http.ResponseWriter, r *web.Request, status int, form editForm) error {
	return c.pages.Render(w, status, form.page, r.View(form))
}

// edit changes the Merchant and leads back to the section of its page with the form's name, or shows the form again.
func (c *console) edit(w http.ResponseWriter, r *web.Request, form editForm, change func(*v1alpha1.Merchant)) error {
	changed, err := c.change(r.Context(), w, r, form, change)
	if err != nil || !changed {
		return err
	}
	return r.LeadTo(w, "#"+form.page)
}

// change changes the Merchant until ctx ends; else it shows the form again, and says why not. The API server checks the fields: there is one rule
// for the console and for kubectl.
func (c *console) change(ctx context.Context, w http.ResponseWriter, r *web.Request, form editForm, change func(*v1alpha1.Merchant)) (done bool, err error) {
	refuse := func(message string) (bool, error) {
		form.Error, form.Generation = message, r.Merchant.Generation
		return false, c.renderEditForm(w, r, http.StatusUnprocessableEntity, form)
	}
	if form.Generation != r.Merchant.Generation {
		return refuse(c.pages.Words.Text("form.changed"))
	}
	changed, err := c.patch(ctx, r.Merchant, change)
	c.audit.Record(ctx, audit.Entry{Viewer: r.Viewer, Action: form.action, Object: r.Merchant, ID: published.ID(r.Merchant.UID), Generation: changed.Generation, Err: err})
	switch {
	case apierrors.IsConflict(err):
		return refuse(c.pages.Words.Text("form.changed"))
	case apierrors.IsInvalid(err):
		return refuse(objects.InvalidReason(c.pages.Words, err))
	case err != nil:
		return false, objects.Error(form.action+" of a Merchant", err)
	}
	return true, nil
}

// patch changes a Merchant that still has this generation. Only its spec counts: another writer of its status is no conflict.
func (c *console) patch(ctx context.Context, seen *v1alpha1.Merchant, change func(*v1alpha1.Merchant)) (*v1alpha1.Merchant, error) {
	latest := seen
	for {
		changed := latest.DeepCopy()
		change(changed)
		err := c.objects.Patch(ctx, changed, client.MergeFromWithOptions(latest, client.MergeFromWithOptimisticLock{}), client.FieldOwner(objects.FieldOwner))
		if !apierrors.IsConflict(err) {
			return changed, err
		}
		latest = new(v1alpha1.Merchant)
		if err := c.objects.Get(ctx, client.ObjectKeyFromObject(seen), latest); err != nil {
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
