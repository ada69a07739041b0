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
	"k8s.io/apimachinery/pkg/types"

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
	uids := make([]types.UID, len(list.Rows))
	for i := range list.Rows {
		uids[i] = list.Rows[i].UID
	}
	list.Acceptance = h.readAcceptance(ctx, merchant, uids)
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
			rows[i] = new(NewRow(h.Pages.Words(ctx), *key, h.Pages.Now()))
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

// refusals are the reasons of the condition Usable with which a key is refused.
func refusals() []string {
	return []string{
		v1alpha1.ReasonDisabled, v1alpha1.ReasonExpired, v1alpha1.ReasonMerchantSuspended, v1alpha1.ReasonMerchantClosed, v1alpha1.ReasonMerchantNotFound,
		v1alpha1.ReasonMerchantNotPublished,
	}
}

// Problems of a key that only the console knows. Others are reasons of the condition Usable.
const (
	problemUnknown    = "Unknown"
	problemNotInForce = "NotInForce"
	problemDeleted    = "Deleted"
)

// apply says what is in force of the key. The status of the ApiKey, which tenants can write and the operator may write late, is no more than the
// reason why an accepted key is not as its spec wants it.
func (k *Row) apply(in issuer.Acceptance) {
	k.Force = in.KeyForce(k.UID, k.Wants == WantsActive)
	switch {
	case k.Force == issuer.ForceUnknown:
		k.Problem = problemUnknown
	case k.Force == issuer.NotInForce && k.Wants != WantsActive:
		k.Problem = problemNotInForce
	case k.Force == issuer.NotInForce:
		k.Problem = notReady
	case k.Wants == WantsDisabled:
		k.Problem = v1alpha1.ReasonDisabled
	case k.Wants == WantsDeleted:
		k.Problem = problemDeleted
	case k.Wants == WantsExpired:
		k.Problem = v1alpha1.ReasonExpired
	case in.Merchant == v1alpha1.MerchantSuspended:
		k.Problem = v1alpha1.ReasonMerchantSuspended
	case in.Merchant == v1alpha1.MerchantClosed:
		k.Problem = v1alpha1.ReasonMerchantClosed
	case slices.Contains(refusals(), k.Problem):
		k.Problem = ""
	}
}

// Line is the key of the words that say whether tills are refused; empty: nothing needs to be said.
func (k *Row) Line() string {
	switch {
	case k.Force != issuer.InForce:
		return "force." + k.Wants + "." + string(k.Force)
	case k.Wants == WantsDisabled || k.Wants == WantsDeleted:
		return "force." + k.Wants
	}
	return ""
}
