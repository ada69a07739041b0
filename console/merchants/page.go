package merchants

import (
	"context"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/allowlist"
	"github.com/merchant-operator/merchant-operator/console/issuer"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/console/webhook"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// merchantPage is one Merchant: what needs attention, and how it is connected.
type merchantPage struct {
	Merchant  *v1alpha1.Merchant
	Base      string // address of the page
	Clock     web.Clock
	Rights    rights.Rights
	Manager   gitops.Manager
	Attention web.Attention
	// Refunds are those that have waited for long, with the right to see payments.
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
	// Used: the first charge is made, as far as the viewer may know.
	Used     bool
	Activity []activity
}

// Tabs lead to the Merchant's payments.
func (p *merchantPage) Tabs() web.Tabs {
	return web.Tabs{Base: p.Base, At: "integrations", Payments: p.Rights.ViewPayments}
}

// Show shows a Merchant.
func (h *Handler) Show(w http.ResponseWriter, r *web.Request) error {
	page, err := h.merchantPage(r)
	if err != nil {
		return err
	}
	return h.Pages.Render(w, r.Request, http.StatusOK, "merchant", r.TitledView(h.Pages.Words(r.Context()).Text("tabs.integrations"), &page))
}

// Attention returns what needs attention of the Merchant of a request, for pages of other rooms.
func (h *Handler) Attention(r *web.Request) (web.Attention, error) {
	page := h.newPage(r)
	reads, ctx := errgroup.WithContext(r.Context())
	h.readAttention(ctx, reads, &page, r.Viewer)
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	err := h.addAttention(r, &page)
	return page.Attention, err
}

func (h *Handler) newPage(r *web.Request) merchantPage {
	return merchantPage{Merchant: r.Merchant, Base: web.MerchantURL(r.Merchant), Clock: h.Pages.Clock(r.Context(), r.Merchant), Manager: gitops.FindManager(r.Merchant)}
}

// readAttention starts the reads of what may need attention, each of which needs no other one. also are reads that need the keys.
func (h *Handler) readAttention(ctx context.Context, reads *errgroup.Group, page *merchantPage, viewer login.Person, also ...func() error) {
	merchant := page.Merchant
	reads.Go(func() (err error) {
		if page.Rights, err = h.Rights.Read(ctx, viewer, merchant); err != nil || !page.Rights.ViewPayments {
			return err
		}
		page.Refunds, err = h.Payments.OverdueRefunds(ctx, merchant)
		return err
	})
	reads.Go(func() error {
		list, err := h.Keys.List(ctx, merchant)
		page.Keys, page.MoreKeys, page.Acceptance = list.Rows, list.More, list.Acceptance
		for _, read := range also {
			if err == nil {
				err = read()
			}
		}
		return err
	})
	reads.Go(func() (err error) {
		page.Webhook, err = h.Webhook.ReadHealth(ctx, merchant)
		return err
	})
}

// addAttention says what needs attention, when all of it is read.
func (h *Handler) addAttention(r *web.Request, page *merchantPage) (err error) {
	all := make([]*v1alpha1.ApiKey, len(page.Keys))
	for i := range page.Keys {
		all[i] = &page.Keys[i].ApiKey
	}
	if page.Allowlist, err = h.Allowlist.Check(r, all); err != nil {
		return err
	}
	page.Attention, err = page.attention(page.Clock.Words)
	return err
}

// merchantPage reads side by side what needs no other read.
func (h *Handler) merchantPage(r *web.Request) (merchantPage, error) {
	page := h.newPage(r)
	page.Examples = examples(h.APIURL)
	reads, ctx := errgroup.WithContext(r.Context())
	h.readAttention(ctx, reads, &page, r.Viewer, func() (err error) {
		page.Activity, err = h.recentActivity(ctx, r.Merchant, page.Keys)
		return err
	})
	reads.Go(func() (err error) {
		page.DeadLetters, err = h.Webhook.ListDeadLetters(ctx, r.Merchant, webhook.ShownDeadLetters)
		return err
	})
	reads.Go(func() (err error) {
		page.Attempts, err = h.Webhook.ReadAttempts(ctx, r.Merchant)
		return err
	})
	if err := reads.Wait(); err != nil {
		return page, err
	}
	if !page.Rights.ViewPayments {
		webhook.HideOrders(page.DeadLetters)
	}
	for i := range page.Keys {
		page.Keys[i].Open = page.Keys[i].Name == r.URL.Query().Get("key")
		page.Used = page.Used || page.Keys[i].Status.LastUsedTime != nil
	}
	if !page.Used && page.Rights.ViewPayments { // uses of keys are counted once in a while
		var err error
		if page.Used, err = h.Payments.Any(r.Context(), r.Merchant); err != nil {
			return page, err
		}
	}
	err := h.addAttention(r, &page)
	return page, err
}
