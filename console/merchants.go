package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

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
	return c.pages.render(w, http.StatusOK, "merchants", view{Title: "Merchants", Viewer: &viewer, Data: page})
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
	return c.pages.render(w, http.StatusOK, "merchant", view{Title: "Integrations · " + merchant.Spec.DisplayName, Viewer: &viewer, Data: page})
}

func (c *console) merchantPage(r *http.Request, viewer login.Person, merchant *v1alpha1.Merchant) (merchantPage, error) {
	allowed, err := c.rights(r.Context(), viewer, merchant)
	if err != nil {
		return merchantPage{}, err
	}
	keys, err := c.listKeys(r.Context(), merchant)
	if err != nil {
		return merchantPage{}, err
	}
	events, err := c.recentActivity(r.Context(), merchant, keys)
	if err != nil {
		return merchantPage{}, err
	}
	check, err := c.checkAllowlist(r, merchant)
	if err != nil {
		return merchantPage{}, err
	}
	health, err := c.readHealth(r.Context(), merchant)
	if err != nil {
		return merchantPage{}, err
	}
	letters, err := c.listDeadLetters(r.Context(), merchant, shownDeadLetters)
	if err != nil {
		return merchantPage{}, err
	}
	page := merchantPage{
		Merchant: merchant, Rights: allowed, Manager: gitops.ManagerOf(merchant), Examples: examples(c.options.APIURL), Activity: events,
		Allowlist: check, Webhook: health, DeadLetters: letters, Keys: keys,
	}
	return page, nil
}
