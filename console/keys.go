package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
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
	Clock    clock
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
	Clock    clock
}

// What the form of a new key offers. Absent in the spec, permissions are all.
const (
	tillPermissions = "till"
	allPermissions  = "all"
)

// maxKeys limits the ApiKeys that people create for one Merchant.
const maxKeys = 100

func (c *console) newKeyForm(w http.ResponseWriter, _ *http.Request, viewer login.Person, merchant *v1alpha1.Merchant) error {
	return c.renderKeyForm(w, http.StatusOK, viewer, "key-new", keyForm{Merchant: merchant})
}

func (c *console) renderKeyForm(w http.ResponseWriter, status int, viewer login.Person, page string, form keyForm) error {
	form.Overlaps, form.Clock = overlaps(), c.shopClock(form.Merchant)
	if form.Key != nil {
		form.Manager = gitops.FindManager(form.Key)
	}
	return c.pages.render(w, status, page, view{Title: form.Merchant.Spec.DisplayName, Viewer: &viewer, Data: form})
}

// issueKey creates an ApiKey that no Secret has, and then rotates it once for the first key. If something fails in between, the
// ApiKey exists and nobody knows its key; rotating gives one.
func (c *console) issueKey(w http.ResponseWriter, r *http.Request, viewer login.Person, merchant *v1alpha1.Merchant) error {
	mode := v1alpha1.ApiKeyMode(cmp.Or(r.PostFormValue("mode"), string(v1alpha1.ModeLive)))
	permissions := cmp.Or(r.PostFormValue("permissions"), tillPermissions)
	form := keyForm{Merchant: merchant, Name: r.PostFormValue("name"), Test: mode == v1alpha1.ModeTest, All: permissions == allPermissions}
	refuse := func(message string) error {
		form.Error = message
		return c.renderKeyForm(w, http.StatusUnprocessableEntity, viewer, "key-new", form)
	}
	if problems := validation.IsDNS1123Label(form.Name); len(problems) > 0 {
		return refuse(c.words.text("issue.error.name"))
	}
	if mode != v1alpha1.ModeLive && mode != v1alpha1.ModeTest {
		return refuse(c.words.text("issue.error.mode"))
	}
	if permissions != tillPermissions && permissions != allPermissions {
		return refuse(c.words.text("issue.error.permissions"))
	}
	existing, err := c.listKeys(r.Context(), merchant)
	if err != nil {
		return err
	}
	if len(existing) >= maxKeys {
		return refuse(c.words.text("issue.error.many", len(existing)))
	}
	key := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: merchant.Namespace, Name: form.Name},
		Spec: v1alpha1.ApiKeySpec{
			MerchantRef: v1alpha1.MerchantReference{Name: merchant.Name}, Mode: mode, Delivery: &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone},
		},
	}
	if !form.All {
		key.Spec.Permissions = v1alpha1.TillPermissions()
	}
	switch err := c.kube.Create(r.Context(), key, client.FieldOwner(fieldOwner)); {
	case apierrors.IsAlreadyExists(err):
		return refuse(c.words.text("issue.error.taken"))
	case apierrors.IsInvalid(err):
		return refuse(c.invalidReason(err))
	case err != nil:
		return kubernetesError("create an ApiKey", err)
	}
	issued, err := c.firstKey(r.Context(), key, viewer)
	c.record(r.Context(), event{viewer, actionIssue, key, published.ID(key.UID), issued.Generation, err})
	if err != nil {
		return &notIssuedError{merchant, key.Name, err}
	}
	return c.showKey(w, viewer, keyPage{Merchant: merchant, Key: key.Name, FullKey: issued.FullKey, First: true})
}

// firstGeneration is the one that the operator publishes an ApiKey with: nobody has its key.
const firstGeneration = 1

// firstKey waits until the operator has published the ApiKey, and rotates it while there is time to show the key.
func (c *console) firstKey(ctx context.Context, key *v1alpha1.ApiKey, viewer login.Person) (issued rotation.Issued, err error) {
	const interval = 100 * time.Millisecond
	for {
		issued, err = c.issuer.rotate(ctx, key, firstGeneration, 0, viewer.User)
		if !errors.Is(err, errNotPublished) {
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
func (c *console) showKey(w http.ResponseWriter, viewer login.Person, page keyPage) error {
	page.Clock = c.shopClock(page.Merchant)
	return c.pages.render(w, http.StatusOK, "key", view{Title: page.Merchant.Spec.DisplayName, Viewer: &viewer, Data: page})
}

// showKeyForm shows the form of an action on a key.
func (c *console) showKeyForm(page string) keyHandler {
	return func(w http.ResponseWriter, _ *http.Request, viewer login.Person, merchant *v1alpha1.Merchant, key *v1alpha1.ApiKey) error {
		return c.renderKeyForm(w, http.StatusOK, viewer, page, keyForm{Merchant: merchant, Key: key})
	}
}

// rotateKey works for keys that Git manages too, for it changes no spec.
func (c *console) rotateKey(w http.ResponseWriter, r *http.Request, viewer login.Person, merchant *v1alpha1.Merchant, key *v1alpha1.ApiKey) error {
	generation, err := strconv.ParseInt(r.PostFormValue("generation"), 10, 64)
	seconds, overlapErr := strconv.ParseInt(r.PostFormValue("overlap"), 10, 64)
	if errors.Join(err, overlapErr) != nil || !knownOverlap(seconds) {
		return c.renderKeyForm(w, http.StatusUnprocessableEntity, viewer, "key-rotate", keyForm{Merchant: merchant, Key: key, Error: c.words.text("rotate.error.overlap")})
	}
	issued, err := c.issuer.rotate(r.Context(), key, generation, time.Duration(seconds)*time.Second, viewer.User)
	c.record(r.Context(), event{viewer, actionRotate, key, published.ID(key.UID), issued.Generation, err})
	if err != nil {
		return err
	}
	// A key that was created here and could not be shown has generation 1.
	first := generation == firstGeneration && key.Spec.Delivery != nil && key.Spec.Delivery.Policy == v1alpha1.DeliveryNone
	page := keyPage{Merchant: merchant, Key: key.Name, FullKey: issued.FullKey, First: first}
	if issued.PreviousValidUntil != nil {
		page.OldUntil = time.UnixMilli(*issued.PreviousValidUntil)
	}
	return c.showKey(w, viewer, page)
}

func knownOverlap(seconds int64) bool {
	for _, known := range overlaps() {
		if known.Seconds == seconds {
			return true
		}
	}
	return false
}

func (c *console) disableKey(ctx context.Context, key *v1alpha1.ApiKey) error {
	changed := key.DeepCopy()
	changed.Spec.State = v1alpha1.ApiKeyDisabled
	return c.kube.Patch(ctx, changed, client.MergeFrom(key), client.FieldOwner(fieldOwner))
}

// enableKey switches a disabled key on again. It refuses a key that Git manages, whose tool would undo that.
func (c *console) enableKey(w http.ResponseWriter, r *http.Request, viewer login.Person, merchant *v1alpha1.Merchant, key *v1alpha1.ApiKey) error {
	if owner := gitops.FindManager(key); owner.Tool != "" {
		return &gitManagedError{owner, "ApiKey " + key.Namespace + "/" + key.Name}
	}
	changed := key.DeepCopy()
	changed.Spec.State = v1alpha1.ApiKeyActive
	err := c.kube.Patch(r.Context(), changed, client.MergeFrom(key), client.FieldOwner(fieldOwner))
	c.record(r.Context(), event{viewer, actionEnable, key, published.ID(key.UID), key.Status.KeyGeneration, err})
	if err != nil {
		return kubernetesError(actionEnable+" an ApiKey", err)
	}
	return c.backTo(w, r, merchant, "keys")
}

func (c *console) deleteKey(ctx context.Context, key *v1alpha1.ApiKey) error {
	return c.kube.Delete(ctx, key, client.Preconditions{UID: &key.UID})
}

// endKey ends a key whose name the person has typed. It refuses a key that Git manages, whose tool would undo that; a person may disable
// it all the same.
func (c *console) endKey(action, page string, end func(context.Context, *v1alpha1.ApiKey) error) keyHandler {
	return func(w http.ResponseWriter, r *http.Request, viewer login.Person, merchant *v1alpha1.Merchant, key *v1alpha1.ApiKey) error {
		// Labels and annotations are anybody's: they must not keep a leaked key alive.
		override := action == actionDisable && r.PostFormValue("override") == "yes"
		if owner := gitops.FindManager(key); owner.Tool != "" && !override {
			return &gitManagedError{owner, "ApiKey " + key.Namespace + "/" + key.Name}
		}
		if r.PostFormValue("name") != key.Name {
			return c.renderKeyForm(w, http.StatusUnprocessableEntity, viewer, page,
				keyForm{Merchant: merchant, Key: key, Name: r.PostFormValue("name"), Error: c.words.text("key.error.name", key.Name)})
		}
		err := end(r.Context(), key)
		c.record(r.Context(), event{viewer, action, key, published.ID(key.UID), key.Status.KeyGeneration, err})
		if err != nil {
			return kubernetesError(action+" an ApiKey", err)
		}
		return c.backTo(w, r, merchant, "keys")
	}
}
