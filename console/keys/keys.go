package keys

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"
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
	"github.com/merchant-operator/merchant-operator/internal/payments"
)

// ErrReplaced means that the ApiKey which the person has seen was deleted. Another one may have its name.
var ErrReplaced = errors.New("the ApiKey is another one than the person has seen")

// keyForm is a page about one key, before something is done to it.
type keyForm struct {
	Merchant *v1alpha1.Merchant
	Key      *v1alpha1.ApiKey // nil: a new one
	Action   string           // the last part of the path that it is sent to
	Name     string           // what was entered
	Test     bool             // chosen: a test key
	All      bool             // chosen: all permissions, not the permissions of a till
	Expires  string           // chosen: the last day of a new key, such as 2027-02-28; empty: none
	Error    string
	Field    string // that Error is about: name or expires; empty: none of them
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

// Fields of the form of a new key that an error may be about.
const (
	fieldName    = "name"
	fieldExpires = "expires"
)

// maxKeys limits the ApiKeys that people create for one Merchant.
const maxKeys = 100

// ShowNew shows the form of a new key.
func (h *Handler) ShowNew(w http.ResponseWriter, r *web.Request) error {
	return h.renderKeyForm(w, r, http.StatusOK, "key-new", keyForm{})
}

func (h *Handler) renderKeyForm(w http.ResponseWriter, r *web.Request, status int, page string, form keyForm) error {
	form.Merchant, form.Overlaps, form.Clock = r.Merchant, overlaps(), h.Pages.Clock(r.Context(), r.Merchant)
	if form.Key != nil {
		form.Manager = gitops.FindManager(form.Key)
	}
	return h.Pages.Render(w, r.Request, status, page, r.View(form))
}

// Issue creates an ApiKey that no Secret has, and then rotates it once for the first key. If something fails in between, the
// ApiKey exists and nobody knows its key; rotating gives one.
func (h *Handler) Issue(w http.ResponseWriter, r *web.Request) error {
	form, key := h.readNewKey(r)
	words := h.Pages.Words(r.Context())
	refuse := func(field, message string) error {
		form.Field, form.Error = field, message
		return h.renderKeyForm(w, r, http.StatusUnprocessableEntity, "key-new", form)
	}
	if key == nil {
		return refuse(form.Field, form.Error)
	}
	existing, err := h.Objects.KnownKeys(r.Context(), r.Merchant)
	if err != nil {
		return err
	}
	if len(existing) >= maxKeys {
		return refuse("", words.Text("issue.error.many", len(existing)))
	}
	err = h.Objects.Create(r.Context(), key, client.FieldOwner(objects.FieldOwner))
	switch reason, refused := objects.RefusedReason(words, err); {
	case refused && strings.Contains(reason, "spec.expiresAt") && form.Expires == "":
		return refuse(fieldExpires, words.Text("issue.error.demanded"))
	case refused && strings.Contains(reason, "spec.expiresAt"):
		return refuse(fieldExpires, reason)
	case refused:
		return refuse("", reason)
	case apierrors.IsAlreadyExists(err):
		return refuse(fieldName, words.Text("issue.error.taken"))
	case err != nil:
		return objects.Error("create an ApiKey", err)
	}
	issued, err := h.firstKey(r.Context(), key, r.Viewer)
	h.Audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: audit.ActionIssue, Object: key, ID: published.ID(key.UID), Generation: issued.Generation, Err: err})
	if err != nil {
		return &NotIssuedError{key.Name, key.Namespace, err}
	}
	return h.showKey(w, r, keyPage{Key: key.Name, FullKey: issued.FullKey, First: true})
}

// readNewKey reads the form of a new key. Without an ApiKey, the form says what is wrong.
func (h *Handler) readNewKey(r *web.Request) (form keyForm, key *v1alpha1.ApiKey) {
	mode := v1alpha1.ApiKeyMode(cmp.Or(r.PostFormValue("mode"), string(v1alpha1.ModeLive)))
	permissions := cmp.Or(r.PostFormValue("permissions"), tillPermissions)
	form = keyForm{
		Name: r.PostFormValue("name"), Test: mode == v1alpha1.ModeTest, All: permissions == allPermissions, Expires: strings.TrimSpace(r.PostFormValue("expires")),
	}
	expiresAt, ok := lastSecond(form.Expires, h.Pages.Now(), r.Merchant.Spec.TimeZone.Location())
	switch words := h.Pages.Words(r.Context()); {
	case len(validation.IsDNS1123Label(form.Name)) > 0:
		form.Field, form.Error = fieldName, words.Text("issue.error.name")
		if offer := keyName(form.Name); offer != "" {
			form.Name, form.Error = offer, words.Text("issue.error.offer", offer)
		}
		return form, nil
	case mode != v1alpha1.ModeLive && mode != v1alpha1.ModeTest:
		form.Error = words.Text("issue.error.mode")
		return form, nil
	case permissions != tillPermissions && permissions != allPermissions:
		form.Error = words.Text("issue.error.permissions")
		return form, nil
	case !ok:
		form.Field, form.Error = fieldExpires, words.Text("issue.error.expires")
		return form, nil
	}
	key = &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Merchant.Namespace, Name: form.Name},
		Spec: v1alpha1.ApiKeySpec{
			MerchantRef: v1alpha1.MerchantReference{Name: r.Merchant.Name}, Mode: mode, Delivery: &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone},
			ExpiresAt: expiresAt,
		},
	}
	if !form.All {
		key.Spec.Permissions = v1alpha1.TillPermissions()
	}
	return form, key
}

// lastSecond returns the end of a key whose last day a person has chosen: a day such as 2027-02-28 of the shop's calendar, today or later. The
// end is in that day, so that pages name the day that was chosen. Without a day it is nil.
func lastSecond(text string, now time.Time, zone *time.Location) (expiresAt *metav1.Time, ok bool) {
	if text == "" {
		return nil, true
	}
	day, err := payments.ParseDay(text, now, zone)
	if err != nil {
		return nil, false
	}
	_, next := day.Bounds()
	last := metav1.NewTime(next.Add(-time.Second))
	const latest = 2999 // as the API server allows
	return &last, last.After(now) && last.UTC().Year() <= latest
}

// umlauts are letters that people write in two, and others do not read without their dots.
var umlauts = strings.NewReplacer("ä", "ae", "ö", "oe", "ü", "ue", "ß", "ss")

// keyName makes a name of a key of what a person calls the till: "Till 2 (bar)" is till-2-bar; empty: nothing of it may be in a name.
func keyName(text string) string {
	const longest = 63
	letters := func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			return r
		case unicode.Is(unicode.Mn, r): // the accent of a letter
			return -1
		}
		return ' '
	}
	name := strings.Join(strings.Fields(strings.Map(letters, norm.NFD.String(umlauts.Replace(strings.ToLower(norm.NFC.String(text)))))), "-")
	return strings.TrimRight(name[:min(len(name), longest)], "-")
}

// firstGeneration is the one that the operator publishes an ApiKey with: nobody has its key.
const firstGeneration = 1

// firstKey waits until the operator has published the ApiKey, and rotates it while there is time to show the key.
func (h *Handler) firstKey(ctx context.Context, key *v1alpha1.ApiKey, viewer login.Person) (issued rotation.Issued, err error) {
	const interval = 100 * time.Millisecond
	for {
		issued, err = h.Issuer.Rotate(ctx, key, firstGeneration, 0, viewer.User)
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

// NotIssuedError means that the ApiKey was created, and nobody knows its key.
type NotIssuedError struct {
	// Key is the name of the ApiKey.
	Key       string
	namespace string
	cause     error
}

// Error is for the log.
func (e *NotIssuedError) Error() string {
	return fmt.Sprintf("issue the first key of %s/%s: %v", e.namespace, e.Key, e.cause)
}

// Unwrap returns the cause.
func (e *NotIssuedError) Unwrap() error { return e.cause }

// showKey is the only answer with a key in it.
func (h *Handler) showKey(w http.ResponseWriter, r *web.Request, page keyPage) error {
	page.Merchant, page.Clock = r.Merchant, h.Pages.Clock(r.Context(), r.Merchant)
	return h.Pages.Render(w, r.Request, http.StatusOK, "key", r.View(page))
}

// ShowForm returns the handler that shows the form of an action on a key.
func (h *Handler) ShowForm(page string) func(http.ResponseWriter, *web.Request, *v1alpha1.ApiKey) error {
	return func(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey) error {
		return h.renderKeyForm(w, r, http.StatusOK, page, keyForm{Key: key})
	}
}

// Rotate works for keys that Git manages too, for it changes no spec.
func (h *Handler) Rotate(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey) error {
	generation, err := strconv.ParseInt(r.PostFormValue("generation"), 10, 64)
	seconds, overlapErr := strconv.ParseInt(r.PostFormValue("overlap"), 10, 64)
	if errors.Join(err, overlapErr) != nil || !knownOverlap(seconds) {
		return h.renderKeyForm(w, r, http.StatusUnprocessableEntity, "key-rotate", keyForm{Key: key, Error: h.Pages.Words(r.Context()).Text("rotate.error.overlap")})
	}
	issued, err := h.Issuer.Rotate(r.Context(), key, generation, time.Duration(seconds)*time.Second, r.Viewer.User)
	h.Audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: audit.ActionRotate, Object: key, ID: published.ID(key.UID), Generation: issued.Generation, Err: err})
	if err != nil {
		return err
	}
	// A key that was created here and could not be shown has generation 1.
	first := generation == firstGeneration && key.Spec.Delivery != nil && key.Spec.Delivery.Policy == v1alpha1.DeliveryNone
	page := keyPage{Key: key.Name, FullKey: issued.FullKey, First: first}
	if issued.PreviousValidUntil != nil {
		page.OldUntil = time.UnixMilli(*issued.PreviousValidUntil)
	}
	return h.showKey(w, r, page)
}

func knownOverlap(seconds int64) bool { return slices.Contains(overlaps(), overlap{seconds}) }

// Enable switches a disabled key on again, unless Git manages it, whose tool would undo the change.
func (h *Handler) Enable(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey) error {
	if err := objects.CheckManager("ApiKey", key); err != nil {
		return err
	}
	enabled := key.DeepCopy()
	enabled.Spec.State = v1alpha1.ApiKeyActive // it may have expired meanwhile
	return h.changeKey(w, r, key, audit.ActionEnable, keyWish(enabled, h.Pages.Now()), func(ctx context.Context) error {
		return h.setKeyState(ctx, key, v1alpha1.ApiKeyActive)
	})
}

// Disable works for a key that Git manages too, if the person says so: labels and annotations are anybody's, and must not keep a leaked key
// alive.
func (h *Handler) Disable(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey) error {
	if err := objects.CheckManager("ApiKey", key); err != nil && r.PostFormValue("override") != "yes" {
		return err
	}
	if r.PostFormValue("name") != key.Name {
		return h.askKeyName(w, r, key, "key-disable")
	}
	return h.changeKey(w, r, key, audit.ActionDisable, WantsDisabled, func(ctx context.Context) error {
		return h.setKeyState(ctx, key, v1alpha1.ApiKeyDisabled)
	})
}

// Delete deletes a key, unless Git manages it.
func (h *Handler) Delete(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey) error {
	if err := objects.CheckManager("ApiKey", key); err != nil {
		return err
	}
	if r.PostFormValue("name") != key.Name {
		return h.askKeyName(w, r, key, "key-delete")
	}
	return h.changeKey(w, r, key, audit.ActionDelete, WantsDeleted, func(ctx context.Context) error {
		return h.Objects.Delete(ctx, key, client.Preconditions{UID: &key.UID})
	})
}

// askKeyName shows the form again in which the person has typed another name than the key's.
func (h *Handler) askKeyName(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey, page string) error {
	form := keyForm{Key: key, Name: r.PostFormValue("name"), Error: h.Pages.Words(r.Context()).Text("key.error.name", key.Name)}
	return h.renderKeyForm(w, r, http.StatusUnprocessableEntity, page, form)
}

// setKeyState changes the state of the very ApiKey that the person has seen: one with its name that was created since has another UID.
func (h *Handler) setKeyState(ctx context.Context, key *v1alpha1.ApiKey, state v1alpha1.ApiKeyState) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": key.UID}, "spec": map[string]any{"state": state}})
	if err != nil {
		return err
	}
	return h.Objects.Patch(ctx, key.DeepCopy(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner(objects.FieldOwner))
}

// replaced reports whether a write was refused because the object has another UID.
func replaced(err error) bool {
	_, denied := errors.AsType[*objects.DeniedError](objects.Error("", err))
	return !denied && (apierrors.IsConflict(err) || apierrors.IsInvalid(err))
}

// changeKey makes a change, waits until it is in force, and leads back to the keys. They say whether it is.
func (h *Handler) changeKey(w http.ResponseWriter, r *web.Request, key *v1alpha1.ApiKey, action, want string, change func(context.Context) error) error {
	err := change(r.Context())
	h.Audit.Record(r.Context(), audit.Entry{Viewer: r.Viewer, Action: action, Object: key, ID: published.ID(key.UID), Generation: key.Status.KeyGeneration, Err: err})
	if replaced(err) {
		return ErrReplaced
	}
	if err != nil {
		return objects.Error(action+" an ApiKey", err)
	}
	h.awaitInForce(r.Context(), r.Viewer, r.Merchant, key.UID, want)
	return r.LeadTo(w, "#keys")
}
