package payments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
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

// export is a day to send as a file.
type export struct {
	day  payments.Day
	test bool
	name string // of the file, without its ending
	// query reads what follows batch, which is read already: until then an error becomes a page.
	query store.EndedQuery
	batch store.EndedPage
	names map[string]string // of the ApiKeys
}

// newExport reads the first part of the day that a request names.
func (h *Handler) newExport(r *web.Request) (e export, err error) {
	e.test = r.URL.Query().Get("mode") == "test"
	e.day, err = payments.ParseDay(cmp.Or(r.URL.Query().Get("day"), "today"), h.Pages.Now(), r.Merchant.Spec.TimeZone.Location())
	if err != nil {
		return e, ErrNoDay
	}
	e.query = store.EndedQuery{Limit: store.MaxEnded, Money: true}
	e.query.From, e.query.To = e.day.Bounds()
	if e.batch, err = h.exportBatch(r.Context(), r.Merchant, e.test, e.query); err != nil {
		return e, err
	}
	e.names, err = h.KeyNames(r.Context(), r.Merchant)
	e.name = "payments-" + r.Merchant.Name + "-" + e.day.String()
	if e.test {
		e.name += "-test"
	}
	return e, err
}

// attachment has the browser save a file under the name.
func attachment(name string) string { return fmt.Sprintf("attachment; filename=%q", name) }

// Export sends the ended payments, the refused ones and the refunds of a day as they are read. A file that cannot be completed says so in its last line, and its
// connection is aborted, so that no browser takes it for a whole one.
func (h *Handler) Export(w http.ResponseWriter, r *web.Request) error {
	end, err := h.Downloads.Begin(r.Viewer.User, r.Merchant.Namespace)
	if err != nil {
		return err
	}
	defer end()
	e, err := h.newExport(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8; header=present")
	w.Header().Set("Content-Disposition", attachment(e.name+".csv"))
	file, err := payments.NewCSV(w, e.day.Zone())
	if err != nil {
		return h.breakOff(w, err)
	}
	ctx := context.WithoutCancel(r.Context()) // a slow client reads longer than a request may take, and one that has gone ends the next write
	for connection, begun := http.NewResponseController(w), time.Now(); ; {
		left := min(exportTimeout, downloadTimeout-time.Since(begun))
		if err := connection.SetWriteDeadline(time.Now().Add(left)); err != nil {
			return h.breakOff(w, err)
		}
		for i := range e.batch.Sessions {
			if err := writeLine(file, &e.batch.Sessions[i], e.names); err != nil {
				return h.breakOff(w, err)
			}
		}
		if err := errors.Join(file.Flush(), connection.Flush()); err != nil {
			return h.breakOff(w, err)
		}
		if e.query.Before = e.batch.Next; e.query.Before == (feed.EntryID{}) {
			return nil
		}
		if e.batch, err = h.exportBatch(ctx, r.Merchant, e.test, e.query); err != nil {
			return h.breakOff(w, err)
		}
	}
}

// linesFile is a file of payments: a CSV or a workbook.
type linesFile interface {
	Write(payment payments.Payment) error
	WriteMovement(moved payments.Movement) error
}

func writeLine(file linesFile, line *store.EndedSession, keyNames map[string]string) error {
	if movement, ok := payments.NewMovement(&line.Session, line.Refused, line.Refund, line.Entry.RecordedAt()); ok {
		movement.Key = keyNames[movement.KeyID]
		return file.WriteMovement(movement)
	}
	payment := payments.New(&line.Session)
	payment.Key = keyNames[payment.KeyID]
	return file.Write(payment)
}

// exportBatch reads a part of a day. Its error is ErrNotKept or one of readEnded's errors.
func (h *Handler) exportBatch(ctx context.Context, merchant *v1alpha1.Merchant, test bool, query store.EndedQuery) (store.EndedPage, error) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	batch, err := h.readEnded(ctx, merchant, test, query)
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
