package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// errKubernetes means that the Kubernetes API did not answer.
var errKubernetes = errors.New("the Kubernetes API is unavailable")

// kubernetesError is errNotFound, or errKubernetes with the reason.
func kubernetesError(what string, err error) error {
	if apierrors.IsNotFound(err) {
		return errNotFound
	}
	return fmt.Errorf("%w: %s: %w", errKubernetes, what, err)
}

// get reads an object that a request names. What cannot be a name is errNotFound, and no part of a path of the Kubernetes API.
func (c *console) get(ctx context.Context, key client.ObjectKey, into client.Object) error {
	if len(content.IsPathSegmentName(key.Namespace))+len(content.IsPathSegmentName(key.Name)) > 0 {
		return errNotFound
	}
	const longest = 4 * time.Second // client-go would try for ten
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if err := c.kube.Get(ctx, key, into); err != nil {
		return kubernetesError("read "+key.String(), err)
	}
	return nil
}

// pageSize is the number of Merchants on a page of the list.
const pageSize = 50

// merchantsPage is the list of Merchants that a person may see.
type merchantsPage struct {
	Merchants  []merchantRow
	Query      string
	Total      int
	Incomplete bool
	// Page counts from 1; 0 in Previous and Next: there is none.
	Page, Previous, Next int
}

type merchantRow struct {
	Namespace, Name, DisplayName string
	State                        v1alpha1.MerchantState
}

func (c *console) listMerchants(w http.ResponseWriter, r *http.Request, viewer login.Person) error {
	var list v1alpha1.MerchantList
	if err := c.merchants.List(r.Context(), &list, client.UnsafeDisableDeepCopy); err != nil {
		return kubernetesError("list Merchants", err)
	}
	query := r.URL.Query().Get("q")
	seen, incomplete, err := c.visible(r.Context(), viewer, matching(list.Items, query))
	if err != nil {
		return err
	}
	number, _ := strconv.Atoi(r.URL.Query().Get("page"))
	last := max(1, (len(seen)+pageSize-1)/pageSize)
	number = min(max(number, 1), last)
	page := merchantsPage{Query: query, Total: len(seen), Incomplete: incomplete, Page: number, Previous: number - 1}
	if number < last {
		page.Next = number + 1
	}
	for _, m := range seen[(number-1)*pageSize : min(number*pageSize, len(seen))] {
		page.Merchants = append(page.Merchants, merchantRow{m.Namespace, m.Name, m.Spec.DisplayName, m.Spec.State})
	}
	return c.render(w, http.StatusOK, "merchants", view{Title: "Merchants", Viewer: &viewer, Data: page})
}

// merchantPage is one Merchant with its keys.
type merchantPage struct {
	Merchant  *v1alpha1.Merchant
	Rights    rights
	Manager   gitops.Manager
	Keys      []keyRow
	Allowlist allowlistCheck
	Webhook   webhookHealth
	// DeadLetters are the newest of those that Webhook counts.
	DeadLetters []deadLetter
	Examples    []example
	Activity    []activity
}

// keyRow is one ApiKey of the Merchant.
type keyRow struct {
	v1alpha1.ApiKey

	Manager gitops.Manager
	// Problem says why the key does not work; empty: it works.
	Problem string
	// Overlap is when the last of the old keys ends; nil: none works.
	Overlap *metav1.Time
}

// visibleMerchant returns a Merchant that the person may see. Errors: errNotFound, errKubernetes, those of may. A missing Merchant is
// the same as one that they may not see.
func (c *console) visibleMerchant(ctx context.Context, p login.Person, key client.ObjectKey) (*v1alpha1.Merchant, error) {
	if watched := c.options.WatchNamespaces; len(watched) > 0 && !slices.Contains(watched, key.Namespace) {
		return nil, errNotFound
	}
	if sees, err := c.may(ctx, newSubject(p), verbGet, key.Namespace, key.Name); err != nil || !sees {
		return nil, cmp.Or(err, errNotFound)
	}
	var merchant v1alpha1.Merchant
	if err := c.get(ctx, key, &merchant); err != nil {
		return nil, err
	}
	return &merchant, nil
}

func (c *console) showMerchant(w http.ResponseWriter, r *http.Request, viewer login.Person, merchant *v1alpha1.Merchant) error {
	page, err := c.merchantPage(r, viewer, merchant)
	if err != nil {
		return err
	}
	return c.render(w, http.StatusOK, "merchant", view{Title: "Integrations · " + merchant.Spec.DisplayName, Viewer: &viewer, Data: page})
}

func (c *console) merchantPage(r *http.Request, viewer login.Person, merchant *v1alpha1.Merchant) (merchantPage, error) {
	allowed, err := c.rights(r.Context(), viewer, merchant)
	if err != nil {
		return merchantPage{}, err
	}
	keys, err := c.keysOf(r.Context(), merchant)
	if err != nil {
		return merchantPage{}, err
	}
	events, err := c.activityOf(r.Context(), merchant, keys)
	if err != nil {
		return merchantPage{}, err
	}
	check, err := c.checkAllowlist(r, merchant)
	if err != nil {
		return merchantPage{}, err
	}
	health, err := c.healthOf(r.Context(), merchant)
	if err != nil {
		return merchantPage{}, err
	}
	letters, err := c.deadLettersOf(r.Context(), merchant, shownDeadLetters)
	if err != nil {
		return merchantPage{}, err
	}
	page := merchantPage{
		Merchant: merchant, Rights: allowed, Manager: gitops.ManagerOf(merchant), Examples: examples(c.options.APIURL), Activity: events,
		Allowlist: check, Webhook: health, DeadLetters: letters, Keys: keys,
	}
	return page, nil
}

// keysPage is the number of ApiKeys in memory as a tenant wrote them, which may be 1.5 MB each.
const keysPage = 20

// keysOf returns the ApiKeys of a Merchant by name. They are read from the Kubernetes API, not from a cache, so that a person sees
// what they have just done.
func (c *console) keysOf(ctx context.Context, merchant *v1alpha1.Merchant) ([]keyRow, error) {
	var keys []keyRow
	for options := (client.ListOptions{Namespace: merchant.Namespace, Limit: keysPage}); ; {
		var page v1alpha1.ApiKeyList
		if err := c.kube.List(ctx, &page, &options); err != nil {
			return nil, kubernetesError("list ApiKeys", err)
		}
		for i := range page.Items {
			if page.Items[i].Spec.MerchantRef.Name == merchant.Name {
				keys = append(keys, newKeyRow(page.Items[i], c.now()))
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	slices.SortFunc(keys, func(a, b keyRow) int { return cmp.Compare(a.Name, b.Name) })
	return keys, nil
}

// newKeyRow keeps no more of the metadata than a page shows.
func newKeyRow(key v1alpha1.ApiKey, now time.Time) keyRow {
	row := keyRow{ApiKey: key, Manager: gitops.ManagerOf(&key)}
	ready := meta.FindStatusCondition(key.Status.Conditions, "Ready")
	switch {
	case key.Spec.State == v1alpha1.ApiKeyDisabled:
		row.Problem = problemWords["Disabled"]
	case ready == nil || ready.Status == metav1.ConditionUnknown:
		row.Problem = "Not ready yet"
	case ready.Status == metav1.ConditionFalse:
		row.Problem = cmp.Or(problemWords[ready.Reason], "Not ready yet")
	}
	if len(key.Status.PreviousKeys) > 0 && now.Before(key.Status.PreviousKeys[0].ValidUntil.Time) {
		row.Overlap = &key.Status.PreviousKeys[0].ValidUntil
	}
	row.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: key.UID, CreationTimestamp: key.CreationTimestamp}
	row.Status.Conditions = nil
	return row
}
