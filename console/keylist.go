package console

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// keyRow is one ApiKey of the Merchant.
type keyRow struct {
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
	OldKeyUse oldKeyUse
}

// keyRows are those of a merchant.
type keyRows []keyRow

// parallelReads bounds the ApiKeys that one page reads at once.
const parallelReads = 16

// maxShownKeys bounds the ApiKeys on a page: a tenant may create any number.
const maxShownKeys = 200

// listKeys returns the ApiKeys of a Merchant by name, at most maxShownKeys, and how many more there are. The watch
// says which there are, so that a page costs the keys of its Merchant and not all keys of the namespace. Each key is
// read from the Kubernetes API, so that a person sees what they have just done.
func (c *console) listKeys(ctx context.Context, merchant *v1alpha1.Merchant) (keys []keyRow, more int, err error) {
	known, err := c.objects.KnownKeys(ctx, merchant)
	if err != nil {
		return nil, 0, err
	}
	if more = len(known) - maxShownKeys; more > 0 {
		slices.SortFunc(known, func(a, b v1alpha1.ApiKey) int { // those that need attention first
			return cmp.Or(cmp.Compare(len(b.Status.Conditions), len(a.Status.Conditions)), cmp.Compare(a.Name, b.Name))
		})
		known = known[:maxShownKeys]
	}
	rows := make([]*keyRow, len(known))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(parallelReads)
	for i := range known {
		reads.Go(func() error {
			key, err := c.objects.ReadKey(ctx, merchant, known[i].Name)
			switch {
			case errors.Is(err, web.ErrNotFound): // deleted since
				return nil
			case err != nil:
				return err
			}
			rows[i] = new(newKeyRow(c.pages.Words, *key, c.now()))
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
	slices.SortFunc(keys, func(a, b keyRow) int { return cmp.Compare(a.Name, b.Name) })
	return keys, max(more, 0), nil
}

// newKeyRow keeps no more of the metadata than a page shows.
func newKeyRow(w web.Words, key v1alpha1.ApiKey, now time.Time) keyRow {
	row := keyRow{ApiKey: key, Manager: gitops.FindManager(&key), Wants: keyWish(&key, now)}
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

// oldKeyUse says whether the old keys of an ApiKey are used.
type oldKeyUse struct {
	// Used: one was used within two hours. Unknown: nobody knows.
	Used, Unknown bool
	// Last is the last use of one; nil: no use is known.
	Last *metav1.Time
}

func newOldKeyUse(status v1alpha1.ApiKeyStatus) oldKeyUse {
	said := meta.FindStatusCondition(status.Conditions, v1alpha1.OldKeyInUseCondition)
	use := oldKeyUse{
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
