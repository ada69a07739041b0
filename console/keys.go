package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/audit"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/objects"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// keyForm is a page about one key, before something is done to it.
type keyForm struct {
	Merchant *v1alpha1.Merchant
	Key      *v1alpha1.ApiKey // nil: a new one
	Action   string           // the last part of the path that it is sent to
	Name     string           // what was entered
	Test     bool             // chosen: a test key
	All      bool             // chosen: all permissions, not those of a till
	Error    string
	Overlaps []overlap
	Manager  gitops.Manager // of the key; the zero Manager: none
	Clock    web.Clock
}

// overlap is how long the old key stays valid, with words of its own (rotate.overlap.*).
type overlap struct{ Seconds int64 }

func overlaps() []overlap { return []overlap{{3600}, {86400}, {0}} }

// keyPage shows a new key, once.
type keyPage struct {
	Merchant *v1alpha1.Merchant
	Key      string // name of the ApiKey
	FullKey  string
	// First: nobody had a key of it before. OldUntil is when the last old key ends; zero: all have ended.
	First    bool
	OldUntil time.Time
	Clock    web.Clock
}

// What the form of a new key offers. Absent in the spec, permissions are all.
const (
	tillPermissions = "till"
	allPermissions  = "all"
)

// maxKeys limits the ApiKeys that people create for one Merchant.
const maxKeys = 100

func (c *console) newKeyForm(w http.ResponseWriter, r *web.Request) error {
	return c.renderKeyForm(w, r, http.StatusOK, "key-new", keyForm{})
}

func (c *console) renderKeyForm(w http.ResponseWriter, r *web.Request, status int, page string, form keyForm) error {
	form.Merchant, form.Overlaps, form.Clock = r.Merchant, overlaps(), c.pages.Clock(r.Merchant)
	if form.Key != nil {
		form.Manager = gitops.FindManager(form.Key)
	}
	return c.pages.Render(w, status, page, r.View(form))
}

// issueKey creates an ApiKey that no Secret has, and then rotates it once for the first key. If something fails in between, the
// ApiKey exists and nobody knows its key; rotating gives one.
func (c *console) issueKey(w http.ResponseWriter, r *web.Request) error {
	mode := v1alpha1.ApiKeyMode(cmp.Or(r.PostFormValue("mode"), string(v1alpha1.ModeLive)))
	permissions := cmp.Or(r.PostFormValue("permissions"), tillPermissions)
	form := keyForm{Name: r.PostFormValue("name"), Test: mode == v1alpha1.ModeTest, All: permissions == allPermissions}
	refuse := func(message string) error {
		form.Error = message
		return c.renderKeyForm(w, r, http.StatusUnprocessableEntity, "key-new", form)
	}
	if problems := validation.IsDNS1123Label(form.Name); len(problems) > 0 {
		return refuse(c.pages.Words.Text("issue.error.name"))
	}
	if mode != v1alpha1.ModeLive && mode != v1alpha1.ModeTest {
		return refuse(c.pages.Words.Text("issue.error.mode"))
	}
	if permissions != tillPermissions && permissions != allPermissions {
		return refuse(c.pages.Words.Text("issue.error.permissions"))
	}
	existing, err := c.objects.KnownKeys(r.Context(), r.Merchant)
	if err != nil {
		return err
	}
	if len(existing) >= maxKeys {
		return refuse(c.pages.Words.Text("issue.error.many", len(existing)))
	}
	key := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Merchant.Namespace, Name: form.Name},
		Spec: v1alpha1.ApiKeySpec{
			MerchantRef: v1alpha1.MerchantReference{Name: r.Merchant.Name}, Mode: mode, Delivery: &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone},
		},
	}
	if !form.All {
		key.Spec.Permissions = v1alpha1.TillPermissions()
	}
	switch err := c.objects.Create(r.Context(), key, client.FieldOwner(objects.FieldOwner)); {
	case apierrors.IsAlreadyExists(err):
		return refuse(c.pages.Words.Text("issue.error.taken"))
	case apierrors.IsInvalid(err):
		return refuse(objects.InvalidReason(c.pages.Words, err))
	case err != nil:
		return objects.Error("create an ApiKey", err)
	}
	issued, err := c.firstKey(r.Context(), key, r.Viewer)
	c.audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: audit.ActionIssue, Object: key, ID: published.ID(key.UID), Generation: issued.Generation, Err: err})
	if err != nil {
		return &notIssuedError{r.Merchant, key.Name, err}
	}
	return c.showKey(w, r, keyPage{Key: key.Name, FullKey: issued.FullKey, First: true})
}

// firstGeneration is the one that the operator publishes an ApiKey with: nobody has its key.
const firstGeneration = 1

// firstKey waits until the operator has published the ApiKey, and rotates it while there is time to show the key.
func (c *console) firstKey(ctx context.Context, key *v1alpha1.ApiKey, viewer login.Person) (issued rotation.Issued, err error) {
	const interval = 100 * time.Millisecond
	for {
		issued, err = c.issuer.Rotate(ctx, key, firstGeneration, 0, viewer.User)
		if !errors.Is(err, issuer.ErrNotPublished) {
			return issued, err
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return issued, ctx.Err()
		}
	}
}

// notIssuedError means that the ApiKey was created, and nobody knows its key.
type notIssuedError struct {
	merchant *v1alpha1.Merchant
	key      string
	cause    error
}

// Error is for the log.
func (e *notIssuedError) Error() string {
	return fmt.Sprintf("issue the first key of %s/%s: %v", e.merchant.Namespace, e.key, e.cause)
}

// Unwrap returns the cause.
func (e *notIssuedError) Unwrap() error { return e.cause }

// showKey is the only answer with a key in it.
func (c *console) showKey(w http.ResponseWriter, r *web.Request, page keyPage) error {
	page.Merchant, page.Clock = r.Merchant, c.pages.Clock(r.Merchant)
	return c.pages.Render(w, http.StatusOK, "key", r.View(page))
}

// showKeyForm shows the form of an action on a key.
func (c *console) showKeyForm(page string) keyHandler {
	return func(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey) error {
		return c.renderKeyForm(w, r, http.StatusOK, page, keyForm{Key: key})
	}
}

// rotateKey works for keys that Git manages too, for it changes no spec.
func (c *console) rotateKey(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey) error {
	generation, err := strconv.ParseInt(r.PostFormValue("generation"), 10, 64)
	seconds, overlapErr := strconv.ParseInt(r.PostFormValue("overlap"), 10, 64)
	if errors.Join(err, overlapErr) != nil || !knownOverlap(seconds) {
		return c.renderKeyForm(w, r, http.StatusUnprocessableEntity, "key-rotate", keyForm{Key: key, Error: c.pages.Words.Text("rotate.error.overlap")})
	}
	issued, err := c.issuer.Rotate(r.Context(), key, generation, time.Duration(seconds)*time.Second, r.Viewer.User)
	c.audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: audit.ActionRotate, Object: key, ID: published.ID(key.UID), Generation: issued.Generation, Err: err})
	if err != nil {
		return err
	}
	// A key that was created here and could not be shown has generation 1.
	first := generation == firstGeneration && key.Spec.Delivery != nil && key.Spec.Delivery.Policy == v1alpha1.DeliveryNone
	page := keyPage{Key: key.Name, FullKey: issued.FullKey, First: first}
	if issued.PreviousValidUntil != nil {
		page.OldUntil = time.UnixMilli(*issued.PreviousValidUntil)
	}
	return c.showKey(w, r, page)
}

func knownOverlap(seconds int64) bool { return slices.Contains(overlaps(), overlap{seconds}) }

// enableKey switches a disabled key on again, unless Git manages it, whose tool would undo the change.
func (c *console) enableKey(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey) error {
	if err := objects.CheckManager("ApiKey", key); err != nil {
		return err
	}
	enabled := key.DeepCopy()
	enabled.Spec.State = v1alpha1.ApiKeyActive // it may have expired meanwhile
	return c.changeKey(w, r, key, audit.ActionEnable, keyWish(enabled, c.now()), func(ctx context.Context) error {
		return c.setKeyState(ctx, key, v1alpha1.ApiKeyActive)
	})
}

// disableKey works for a key that Git manages too, if the person says so: labels and annotations are anybody's, and must not keep a leaked key
// alive.
func (c *console) disableKey(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey) error {
	if err := objects.CheckManager("ApiKey", key); err != nil && r.PostFormValue("override") != "yes" {
		return err
	}
	if r.PostFormValue("name") != key.Name {
		return c.askKeyName(w, r, key, "key-disable")
	}
	return c.changeKey(w, r, key, audit.ActionDisable, wantsDisabled, func(ctx context.Context) error {
		return c.setKeyState(ctx, key, v1alpha1.ApiKeyDisabled)
	})
}

// deleteKey deletes a key, unless Git manages it.
func (c *console) deleteKey(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey) error {
	if err := objects.CheckManager("ApiKey", key); err != nil {
		return err
	}
	if r.PostFormValue("name") != key.Name {
		return c.askKeyName(w, r, key, "key-delete")
	}
	return c.changeKey(w, r, key, audit.ActionDelete, wantsDeleted, func(ctx context.Context) error {
		return c.objects.Delete(ctx, key, client.Preconditions{UID: &key.UID})
	})
}

// askKeyName shows the form again in which the person has typed another name than the key's.
func (c *console) askKeyName(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey, page string) error {
	form := keyForm{Key: key, Name: r.PostFormValue("name"), Error: c.pages.Words.Text("key.error.name", key.Name)}
	return c.renderKeyForm(w, r, http.StatusUnprocessableEntity, page, form)
}

// setKeyState changes the state of the very ApiKey that the person has seen: one with its name that was created since has another UID.
func (c *console) setKeyState(ctx context.Context, key *v1alpha1.ApiKey, state v1alpha1.ApiKeyState) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": key.UID}, "spec": map[string]any{"state": state}})
	if err != nil {
		return err
	}
	return c.objects.Patch(ctx, key.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(objects.FieldOwner))
}

// replaced reports whether a write was refused because the object has another UID.
func replaced(err error) bool { return apierrors.IsConflict(err) || apierrors.IsInvalid(err) }

// changeKey makes a change, waits until it is in force, and leads back to the keys. They say whether it is.
func (c *console) changeKey(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey, action, want string, change func(context.Context) error) error {
	err := change(r.Context())
	c.audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: action, Object: key, ID: published.ID(key.UID), Generation: key.Status.KeyGeneration, Err: err})
	if replaced(err) {
		return errKeyReplaced
	}
	if err != nil {
		return objects.Error(action+" an ApiKey", err)
	}
	c.awaitForce(r.Context(), r.Viewer, r.Merchant.UID, key.UID, want)
	return r.LeadTo(w, "#keys")
}
