package merchants

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/web"
)

const (
	// PageSize is the number of Merchants on a page of the list.
	PageSize = 50
	// maxSorted bounds the Merchants among which those that need attention come first.
	maxSorted = 2000
	// totalsTimeout is how long a page waits for what was paid today. What it does not get by then is left out.
	totalsTimeout = time.Second
)

// merchantsPage is the list of Merchants that a person may see.
type merchantsPage struct {
	Merchants []merchantRow
	Query     string
	Total     int
	// Troubled is how many of them need attention.
	Troubled   int
	Incomplete bool
	// Page counts from 1; 0 in Previous and Next: there is none.
	Page, Previous, Next int
}

// merchantRow is a Merchant in the list. It shows what statuses say and decides nothing by it.
type merchantRow struct {
	*v1alpha1.Merchant

	// Troubles are keys of trouble.* of the words: what needs attention.
	Troubles []string
	// SeesPayments: the person may see its payments. Paid says how many were paid today; empty: that takes too long to find out.
	SeesPayments bool
	Paid         template.HTML
}

// List finds the Merchants that a person may see. It returns one of each namespace of those on the
// page, and what shows the page.
func (h *Handler) List(r *http.Request, viewer login.Person) (merchants []client.ObjectKey, show func(http.ResponseWriter) error, err error) {
	ctx := r.Context()
	known, err := h.Objects.KnownMerchants(ctx)
	if err != nil {
		return nil, nil, err
	}
	query := r.URL.Query()
	seen, incomplete, err := h.Rights.Visible(ctx, viewer, matching(known, query.Get("q")))
	if err != nil {
		return nil, nil, err
	}
	if len(seen) == 1 && !incomplete && len(query) == 0 { // who has one shop goes straight in
		address := web.MerchantURL(seen[0])
		allowed, err := h.Rights.PaymentsVisible(ctx, viewer, seen, 1)
		if err != nil {
			return nil, nil, err
		}
		if allowed[0] {
			address += "/payments"
		}
		return []client.ObjectKey{client.ObjectKeyFromObject(seen[0])}, func(w http.ResponseWriter) error {
			http.Redirect(w, r, address, http.StatusSeeOther)
			return nil
		}, nil
	}
	page := merchantsPage{Query: query.Get("q"), Total: len(seen), Incomplete: incomplete}
	rows, err := h.merchantRows(ctx, seen)
	if err != nil {
		return nil, nil, err
	}
	for i := range rows {
		if len(rows[i].Troubles) > 0 {
			page.Troubled++
		}
	}
	number, _ := strconv.Atoi(query.Get("page"))
	last := max(1, (len(seen)+PageSize-1)/PageSize)
	page.Page = min(max(number, 1), last)
	page.Previous = page.Page - 1
	if page.Page < last {
		page.Next = page.Page + 1
	}
	page.Merchants = detached(rows[(page.Page-1)*PageSize : min(page.Page*PageSize, len(rows))])
	return oneOfEachNamespace(page.Merchants), func(w http.ResponseWriter) error {
		if err := h.countToday(ctx, viewer, page.Merchants, page.Total); err != nil {
			return err
		}
		return h.Pages.Render(w, r, http.StatusOK, "merchants", web.View{Title: h.Pages.Words(ctx).Text("list.title"), Viewer: &viewer, Data: page})
	}, nil
}

// detached returns copies of the rows, which keep nothing of the list of all Merchants in memory.
func detached(rows []merchantRow) []merchantRow {
	copies := slices.Clone(rows)
	for i := range copies {
		merchant := *copies[i].Merchant
		copies[i].Merchant = &merchant
	}
	return copies
}

// oneOfEachNamespace returns the first Merchant of each namespace among the rows, in the order of the namespaces' names.
func oneOfEachNamespace(rows []merchantRow) []client.ObjectKey {
	found := make([]client.ObjectKey, len(rows))
	for i := range rows {
		found[i] = client.ObjectKeyFromObject(rows[i].Merchant)
	}
	slices.SortStableFunc(found, func(a, b client.ObjectKey) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return slices.CompactFunc(found, func(a, b client.ObjectKey) bool { return a.Namespace == b.Namespace })
}

// merchantRows returns the rows in the order of the list: those that need attention first, else by name.
func (h *Handler) merchantRows(ctx context.Context, merchants []*v1alpha1.Merchant) ([]merchantRow, error) {
	rows := make([]merchantRow, len(merchants))
	for i, merchant := range merchants {
		rows[i].Merchant = merchant
	}
	sorted := rows[:min(len(rows), maxSorted)]
	if err := h.findTroubles(ctx, sorted); err != nil {
		return nil, err
	}
	slices.SortStableFunc(sorted, func(a, b merchantRow) int {
		return min(len(b.Troubles), 1) - min(len(a.Troubles), 1)
	})
	return rows, nil
}

// shown returns the Merchants of rows.
func shown(rows []merchantRow) []*v1alpha1.Merchant {
	merchants := make([]*v1alpha1.Merchant, len(rows))
	for i := range rows {
		merchants[i] = rows[i].Merchant
	}
	return merchants
}

// findTroubles reads the health of all webhooks, a script for each bucket, and the keys and blocked addresses in memory.
func (h *Handler) findTroubles(ctx context.Context, rows []merchantRow) error {
	health, err := h.Webhook.ReadStates(ctx, shown(rows))
	if err != nil {
		return err
	}
	ofKeys, err := h.keyTroubles(ctx)
	if err != nil {
		return err
	}
	now := h.Pages.Now()
	for i := range rows {
		row := &rows[i]
		row.Troubles = append(row.Troubles, ofKeys[client.ObjectKeyFromObject(row.Merchant)]...)
		if row.Status.Allowlist != nil && slices.ContainsFunc(row.Status.Allowlist.Refused, func(b v1alpha1.RefusedBlock) bool { return now.Sub(b.LastSeen.Time) < blockedFor }) {
			row.Troubles = append(row.Troubles, "trouble.blocked")
		}
		state := health[published.ID(row.UID)]
		switch {
		case row.Spec.Webhook == nil:
		case state.Disabled():
			row.Troubles = append(row.Troubles, "trouble.webhook.disabled")
		case state.Unhealthy(now):
			row.Troubles = append(row.Troubles, "trouble.webhook.failing")
		}
		if state.Dead > 0 {
			row.Troubles = append(row.Troubles, "trouble.dead")
		}
	}
	return nil
}

// keyTroubles returns what needs attention of the keys in memory, by Merchant.
func (h *Handler) keyTroubles(ctx context.Context) (map[client.ObjectKey][]string, error) {
	known, err := h.Objects.AllKnownKeys(ctx)
	if err != nil {
		return nil, err
	}
	words, now, troubles := h.Pages.Words(ctx), h.Pages.Now(), map[client.ObjectKey][]string{}
	for i := range known {
		if len(known[i].Status.Conditions) == 0 { // most have none: the cache keeps only the conditions that need attention
			continue
		}
		row, trouble := keys.NewRow(words, known[i], now), ""
		switch {
		case row.Lost:
			trouble = "trouble.key.lost"
		case row.OldKeyUse.Used:
			trouble = "trouble.key.old"
		case row.Expiring:
			trouble = "trouble.key.expiring"
		}
		merchant := client.ObjectKey{Namespace: row.Namespace, Name: row.Spec.MerchantRef.Name}
		if trouble != "" && !slices.Contains(troubles[merchant], trouble) {
			troubles[merchant] = append(troubles[merchant], trouble)
		}
	}
	return troubles, nil
}

// countToday counts what was paid today for those rows whose payments the person may see, as far as
// that is known in time. total is how many Merchants they see.
func (h *Handler) countToday(ctx context.Context, viewer login.Person, rows []merchantRow, total int) error {
	allowed, err := h.Rights.PaymentsVisible(ctx, viewer, shown(rows), total)
	if err != nil {
		return err
	}
	var counted []*merchantRow
	var merchants []*v1alpha1.Merchant
	for i := range rows {
		if rows[i].SeesPayments = allowed[i]; allowed[i] {
			counted, merchants = append(counted, &rows[i]), append(merchants, rows[i].Merchant)
		}
	}
	inTime, cancel := context.WithTimeout(ctx, totalsTimeout)
	defer cancel()
	paid, err := h.Payments.PaidToday(inTime, merchants)
	if err != nil && inTime.Err() == nil {
		return err
	}
	for i, row := range counted {
		row.Paid = paid[i]
	}
	return nil
}

// matching returns the Merchants whose name contains the text, by display name.
func matching(all []v1alpha1.Merchant, text string) []*v1alpha1.Merchant {
	text = strings.ToLower(strings.TrimSpace(text))
	lower := map[*v1alpha1.Merchant]string{} // once for each, not for each comparison
	var found []*v1alpha1.Merchant
	for i := range all {
		m := &all[i]
		name := strings.ToLower(m.Spec.DisplayName)
		if strings.Contains(name, text) || strings.Contains(m.Namespace+"/"+m.Name, text) {
			lower[m] = name
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b *v1alpha1.Merchant) int {
		return cmp.Or(cmp.Compare(lower[a], lower[b]), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found
}
