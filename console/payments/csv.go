package payments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// exportTimeout bounds the reading of a batch, and then the writing of it to a slow client.
const exportTimeout = 20 * time.Second

// Export sends the ended payments of a day as they are read. A file that cannot be completed says so in its last line, and its
// connection is aborted, so that no browser takes it for a whole one.
func (h *Handler) Export(w http.ResponseWriter, r *web.Request) error {
	test, zone := r.URL.Query().Get("mode") == "test", r.Merchant.Spec.TimeZone.Location()
	day, err := payments.ParseDay(cmp.Or(r.URL.Query().Get("day"), "today"), h.Pages.Now(), zone)
	if err != nil {
		return ErrNoDay
	}
	end, err := h.Downloads.Begin(r.Viewer.User)
	if err != nil {
		return err
	}
	defer end()
	account := newAccount(r.Merchant, test)
	query := store.EndedQuery{Limit: store.MaxEnded}
	query.From, query.To = day.Bounds()
	batch, err := h.exportBatch(r.Context(), account, query)
	if err != nil {
		return err // nothing is sent yet, so it becomes a page
	}
	names, err := h.KeyNames(r.Context(), r.Merchant)
	if err != nil {
		return err
	}
	name := "payments-" + r.Merchant.Name + "-" + day.String()
	if test {
		name += "-test"
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.csv"`, name))
	file, err := payments.NewCSV(w, zone)
	if err != nil {
		return h.breakOff(w, err)
	}
	for connection := http.NewResponseController(w); ; {
		if err := connection.SetWriteDeadline(time.Now().Add(exportTimeout)); err != nil {
			return h.breakOff(w, err)
		}
		for i := range batch.Sessions {
			payment := payments.New(&batch.Sessions[i].Session)
			payment.Key = names[payment.KeyID]
			if err := file.Write(payment); err != nil {
				return h.breakOff(w, err)
			}
		}
		if err := errors.Join(file.Flush(), connection.Flush()); err != nil {
			return h.breakOff(w, err)
		}
		if query.Before = batch.Next; query.Before == (feed.EntryID{}) {
			return nil
		}
		if batch, err = h.exportBatch(r.Context(), account, query); err != nil {
			return h.breakOff(w, err)
		}
	}
}

// exportBatch reads a part of a day. The whole download may take longer than a request: a slow client reads for minutes. Errors: ErrNotKept
// and those of store.ReadEnded.
func (h *Handler) exportBatch(ctx context.Context, account store.Account, query store.EndedQuery) (store.EndedPage, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTimeout)
	defer cancel()
	batch, err := h.Store.ReadEnded(ctx, account, query)
	if err == nil && batch.Since.After(query.From) {
		err = ErrNotKept
	}
	return batch, err
}

// breakOff ends a file that is not whole. It does not return.
func (h *Handler) breakOff(w http.ResponseWriter, err error) error {
	h.Log.Warn("a download of payments was broken off", "error", err)
	_, _ = fmt.Fprint(w, "THIS FILE IS NOT COMPLETE. Download it again.\r\n")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}
