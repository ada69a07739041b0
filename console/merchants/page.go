package merchants

import (
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/allowlist"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/payments"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/console/webhook"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// merchantPage is one Merchant: what needs attention, what was paid today, and how it is connected.
type merchantPage struct {
	Merchant  *v1alpha1.Merchant
	Base      string // address of the page
	Clock     web.Clock
	Rights    rights.Rights
	Manager   gitops.Manager
	Attention []attention
	Today     payments.DayTotals // with the right to see payments, as the next one
	// Refunds are those that have waited for long.
	Refunds  store.Overdue
	Keys     keys.Rows
	MoreKeys int // that are not shown
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

// Show shows a Merchant.
func (h *Handler) Show(w http.ResponseWriter, r *web.Request) error {
	page, err := h.merchantPage(r)
	if err != nil {
		return err
	}
	return h.Pages.Render(w, http.StatusOK, "merchant", r.TitledView("Integrations", page))
}

// merchantPage reads side by side what needs no other read.
func (h *Handler) merchantPage(r *web.Request) (page merchantPage, err error) {
	merchant := r.Merchant
	page = merchantPage{
		Merchant: merchant, Base: web.MerchantURL(merchant), Clock: h.Pages.Clock(merchant),
		Manager: gitops.FindManager(merchant), Examples: examples(h.APIURL),
	}
	reads, ctx := errgroup.WithContext(r.Context())
	reads.Go(func() (err error) {
		if page.Rights, err = h.Rights.Read(ctx, r.Viewer, merchant); err != nil || !page.Rights.ViewPayments {
			return err
		}
		if page.Today, err = h.Payments.Today(ctx, merchant); err != nil {
			return err
		}
		page.Refunds, err = h.Payments.OverdueRefunds(ctx, merchant)
		return err
	})
	reads.Go(func() (err error) {
		list, err := h.Keys.List(ctx, merchant)
		if err != nil {
			return err
		}
		page.Keys, page.MoreKeys, page.Acceptance = list.Rows, list.More, list.Acceptance
		page.Activity, err = h.recentActivity(ctx, merchant, page.Keys)
		return err
	})
	reads.Go(func() (err error) {
		page.Webhook, err = h.Webhook.ReadHealth(ctx, merchant)
		return err
	})
	reads.Go(func() (err error) {
		page.DeadLetters, err = h.Webhook.ListDeadLetters(ctx, merchant, webhook.ShownDeadLetters)
		return err
	})
	reads.Go(func() (err error) {
		page.Attempts, err = h.Webhook.ReadAttempts(ctx, merchant)
		return err
	})
	if err := reads.Wait(); err != nil {
		return page, err
	}
	if !page.Rights.ViewPayments {
		webhook.HideOrders(page.DeadLetters)
	}
	all := make([]*v1alpha1.ApiKey, len(page.Keys))
	for i := range page.Keys {
		all[i] = &page.Keys[i].ApiKey
	}
	if page.Allowlist, err = h.Allowlist.Check(r, all); err != nil {
		return page, err
	}
	for i := range page.Keys {
		page.Keys[i].Open = page.Keys[i].Name == r.URL.Query().Get("key")
	}
	page.Attention, err = page.attention(h.Pages.Words)
	return page, err
}
