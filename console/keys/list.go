package keys

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// Row is one ApiKey of the Merchant.
type Row struct {
	v1alpha1.ApiKey

	Manager gitops.Manager
	// Wants is what the spec wants of the key, and Force whether that is in force.
	Wants string
	Force issuer.Force
	// Problem is why the key does not work, a reason with words (problem.*); empty: it works.
	Problem string
	// Lost: the key was lost and replaced, so nobody has the new one. Expiring: it expires soon.
	Lost, Expiring bool
	// Open: its details are shown.
	Open bool
	// Overlap is when the last of the old keys ends; nil: none works.
	Overlap *metav1.Time
	// OldKeyUse says whether an old key is used.
	OldKeyUse OldKeyUse
}

// Rows are the ApiKeys of a Merchant.
type Rows []Row

// Name returns the name of the key with an id; the id, if there is none.
func (r Rows) Name(id string) string {
	for _, key := range r {
		if published.ID(key.UID) == id {
			return key.Name
		}
	}
	return id
}

// List is what a page shows of a Merchant's ApiKeys.
type List struct {
	Rows Rows
	// More is how many ApiKeys are not shown.
	More int
	// Acceptance is what is in force of the Merchant and its keys.
	Acceptance issuer.Acceptance
}

// parallelReads bounds the ApiKeys that one page reads at once.
const parallelReads = 16

// MaxShown bounds the ApiKeys on a page: a tenant may create any number.
const MaxShown = 200

// List returns the ApiKeys of a Merchant by name, at most MaxShown, and what is in force of them.
func (h *Handler) List(ctx context.Context, merchant *v1alpha1.Merchant) (list List, err error) {
	if list.Rows, list.More, err = h.readRows(ctx, merchant); err != nil {
		return list, err
	}
	list.Acceptance = h.readAcceptance(ctx, merchant, list.Rows)
	for i := range list.Rows {
		list.Rows[i].apply(list.Acceptance)
	}
	return list, nil
}

// readRows returns the ApiKeys of a Merchant by name, at most MaxShown, and how many more there are. The watch
// says which there are, so that a page costs the keys of its Merchant and not all keys of the namespace. Each key is
// read from the Kubernetes API, so that a person sees what they have just done.
func (h *Handler) readRows(ctx context.Context, merchant *v1alpha1.Merchant) (keys Rows, more int, err error) {
	known, err := h.Objects.KnownKeys(ctx, merchant)
	if err != nil {
		return nil, 0, err
	}
	if more = len(known) - MaxShown; more > 0 {
		slices.SortFunc(known, func(a, b v1alpha1.ApiKey) int { // those that need attention first
			return cmp.Or(cmp.Compare(len(b.Status.Conditions), len(a.Status.Conditions)), cmp.Compare(a.Name, b.Name))
		})
		known = known[:MaxShown]
	}
	rows := make([]*Row, len(known))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(parallelReads)
	for i := range known {
		reads.Go(func() error {
			key, err := h.Objects.ReadKey(ctx, merchant, known[i].Name)
			switch {
			case errors.Is(err, web.ErrNotFound): // deleted since
				return nil
			case err != nil:
				return err
			}
			rows[i] = new(NewRow(h.Pages.Words, *key, h.Pages.Now()))
			return nil
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, 0, err
	}
	for _, row := range rows {
		if row != nil {
			keys = append(keys, *row)
		}
	}
	slices.SortFunc(keys, func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
	return keys, max(more, 0), nil
}

// NewRow returns an ApiKey for a page at the time now. It keeps no more of the metadata than a page shows.
func NewRow(w web.Words, key v1alpha1.ApiKey, now time.Time) Row {
	row := Row{ApiKey: key, Manager: gitops.FindManager(&key), Wants: keyWish(&key, now)}
	usable := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.UsableCondition)
	switch {
	case usable == nil || usable.Status == metav1.ConditionUnknown:
		row.Problem = notReady
	case usable.Status == metav1.ConditionFalse && w.Known("problem."+usable.Reason):
		row.Problem = usable.Reason
	case usable.Status == metav1.ConditionFalse:
		row.Problem = notReady
	}
	row.Lost = meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.KeyLostCondition)
	row.Expiring = key.Spec.ExpiresAt != nil && meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.ExpiringSoonCondition)
	if len(key.Status.PreviousKeys) > 0 && now.Before(key.Status.PreviousKeys[0].ValidUntil.Time) {
		row.Overlap = &key.Status.PreviousKeys[0].ValidUntil
		row.OldKeyUse = newOldKeyUse(key.Status)
	}
	row.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: key.UID, CreationTimestamp: key.CreationTimestamp}
	row.Status.Conditions = nil
	return row
}

// OldKeyUse says whether the old keys of an ApiKey are used.
type OldKeyUse struct {
	// Used: one was used within two hours. Unknown: nobody knows.
	Used, Unknown bool
	// Last is the last use of one; nil: no use is known.
	Last *metav1.Time
}

func newOldKeyUse(status v1alpha1.ApiKeyStatus) OldKeyUse {
	said := meta.FindStatusCondition(status.Conditions, v1alpha1.OldKeyInUseCondition)
	use := OldKeyUse{
		Used:    said != nil && said.Status == metav1.ConditionTrue,
		Unknown: said == nil || said.Status == metav1.ConditionUnknown,
	}
	for i := range status.PreviousKeys {
		if last := status.PreviousKeys[i].LastUsedTime; use.Last == nil || use.Last.Before(last) {
			use.Last = last
		}
	}
	return use
}

// notReady is the problem of a key whose condition Usable has no reason that concerns a shop owner.
const notReady = "NotReady"
