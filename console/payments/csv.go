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

const (
	// exportTimeout bounds the reading of a batch, and then the writing of it to a slow client.
	exportTimeout = 20 * time.Second
	// downloadTimeout bounds the whole: a client that reads slowly keeps a place.
	downloadTimeout = 10 * time.Minute
)

// Export sends the ended payments, the refused ones and the refunds of a day as they are read. A file that cannot be completed says so in its last line, and its
// connection is aborted, so that no browser takes it for a whole one.
func (h *Handler) Export(w http.ResponseWriter, r *web.Request) error {
	test, zone := r.URL.Query().Get("mode") == "test", r.Merchant.Spec.TimeZone.Location()
	day, err := payments.ParseDay(cmp.Or(r.URL.Query().Get("day"), "today"), h.Pages.Now(), zone)
	if err != nil {
		return ErrNoDay
	}
	end, err := h.Downloads.Begin(r.Viewer.User, r.Merchant.Namespace)
	if err != nil {
		return err
	}
	defer end()
	query := store.EndedQuery{Limit: store.MaxEnded, Money: true}
	query.From, query.To = day.Bounds()
	batch, err := h.exportBatch(r, test, query)
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
	for connection, begun := http.NewResponseController(w), time.Now(); ; {
		left := min(exportTimeout, downloadTimeout-time.Since(begun))
		if err := connection.SetWriteDeadline(time.Now().Add(left)); err != nil {
			return h.breakOff(w, err)
		}
		for i := range batch.Sessions {
			if err := writeLine(file, &batch.Sessions[i], names); err != nil {
				return h.breakOff(w, err)
			}
		}
		if err := errors.Join(file.Flush(), connection.Flush()); err != nil {
			return h.breakOff(w, err)
		}
		if query.Before = batch.Next; query.Before == (feed.EntryID{}) {
			return nil
		}
		if batch, err = h.exportBatch(r, test, query); err != nil {
			return h.breakOff(w, err)
		}
	}
}

func writeLine(file *payments.CSV, line *store.EndedSession, keyNames map[string]string) error {
	if movement, ok := payments.NewMovement(&line.Session, line.Refused, line.Refund, line.Entry.RecordedAt()); ok {
		movement.Key = keyNames[movement.KeyID]
		return file.WriteMovement(movement)
	}
	payment := payments.New(&line.Session)
	payment.Key = keyNames[payment.KeyID]
	return file.Write(payment)
}

// exportBatch reads a part of a day. The whole download may take longer than a request: a slow client reads for minutes. Its error is ErrNotKept or
// one of readEnded's errors.
func (h *Handler) exportBatch(r *web.Request, test bool, query store.EndedQuery) (store.EndedPage, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), exportTimeout)
	defer cancel()
	batch, err := h.readEnded(ctx, r.Merchant, test, query)
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
