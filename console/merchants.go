package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/allowlist"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/payments"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/console/webhook"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// merchantPage is one Merchant: what needs attention, what was paid today, and how it is connected.
type merchantPage struct {
	Merchant  *v1alpha1.Merchant
	Base      string // address of the page
	Clock     web.Clock
	Rights    rights.Rights
	Manager   gitops.Manager
	Attention []attention
	Today     payments.DayTotals // with the right to see payments
	Keys      keys.Rows
	MoreKeys  int // that are not shown
	// Acceptance is what is in force of the Merchant and its keys.
	Acceptance issuer.Acceptance
	Allowlist  allowlist.Check
	Webhook    webhook.Health
	// DeadLetters are the newest of those that Webhook counts.
	DeadLetters []webhook.DeadLetter
	Attempts    []webhook.Attempt // the last failed ones
	Examples    []example
	Activity    []activity
}

// visibleMerchant returns a Merchant that the person may see. Errors: web.ErrNotFound, objects.ErrUnavailable, those of may. A missing Merchant is
// the same as one that they may not see.
func (c *console) visibleMerchant(ctx context.Context, p login.Person, key client.ObjectKey) (*v1alpha1.Merchant, error) {
	if watched := c.options.WatchNamespaces; len(watched) > 0 && !slices.Contains(watched, key.Namespace) {
		return nil, web.ErrNotFound
	}
	if sees, err := c.rights.May(ctx, rights.NewSubject(p), rights.Get, key.Namespace, key.Name); err != nil || !sees {
		return nil, cmp.Or(err, web.ErrNotFound)
	}
	var merchant v1alpha1.Merchant
	if err := c.objects.Read(ctx, key, &merchant); err != nil {
		return nil, err
	}
	return &merchant, nil
}

func (c *console) showMerchant(w http.ResponseWriter, r *web.Request) error {
	page, err := c.merchantPage(r)
	if err != nil {
		return err
	}
	return c.pages.Render(w, http.StatusOK, "merchant", r.TitledView("Integrations", page))
}

// merchantPage reads side by side what needs no other read.
func (c *console) merchantPage(r *web.Request) (page merchantPage, err error) {
	merchant := r.Merchant
	page = merchantPage{
		Merchant: merchant, Base: web.MerchantURL(merchant), Clock: c.pages.Clock(merchant),
		Manager: gitops.FindManager(merchant), Examples: examples(c.options.APIURL),
	}
	reads, ctx := errgroup.WithContext(r.Context())
	reads.Go(func() (err error) {
		if page.Rights, err = c.rights.Read(ctx, r.Viewer, merchant); err != nil || !page.Rights.ViewPayments {
			return err
		}
		page.Today, err = c.payments.Today(ctx, merchant)
		return err
	})
	reads.Go(func() (err error) {
		list, err := c.keys.List(ctx, merchant)
		if err != nil {
			return err
		}
		page.Keys, page.MoreKeys, page.Acceptance = list.Rows, list.More, list.Acceptance
		page.Activity, err = c.recentActivity(ctx, merchant, page.Keys)
		return err
	})
	reads.Go(func() (err error) {
		page.Webhook, err = c.webhook.ReadHealth(ctx, merchant)
		return err
	})
	reads.Go(func() (err error) {
		page.DeadLetters, err = c.webhook.ListDeadLetters(ctx, merchant, webhook.ShownDeadLetters)
		return err
	})
	reads.Go(func() (err error) {
		page.Attempts, err = c.webhook.ReadAttempts(ctx, merchant)
		return err
	})
	if err := reads.Wait(); err != nil {
		return page, err
	}
	if !page.Rights.ViewPayments {
		webhook.HideOrders(page.DeadLetters)
	}
	ofMerchant := make([]*v1alpha1.ApiKey, len(page.Keys))
	for i := range page.Keys {
		ofMerchant[i] = &page.Keys[i].ApiKey
	}
	if page.Allowlist, err = c.allowlist.Check(r, ofMerchant); err != nil {
		return page, err
	}
	for i := range page.Keys {
		page.Keys[i].Open = page.Keys[i].Name == r.URL.Query().Get("key")
	}
	page.Attention, err = page.attention(c.pages.Words)
	return page, err
}
