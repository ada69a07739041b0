package payments

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/payments"
)

const (
	// maxExcelLines and maxExcelText, in bytes, bound a workbook here, which is in memory until it is sent: one of this size takes 62 MB for a moment.
	maxExcelLines = 10_000
	maxExcelText  = 3 << 20
	// maxWorkbooks and maxPersonWorkbooks bound the workbooks that are made at once.
	maxWorkbooks, maxPersonWorkbooks = 2, 1
)

// Excel sends what Export sends, as a workbook. It is whole, or there is none. The file has a place of a download until its client has it.
func (h *Handler) Excel(w http.ResponseWriter, r *web.Request) error {
	end, err := h.Downloads.Begin(r.Viewer.User, r.Merchant.Namespace)
	if err != nil {
		return err
	}
	defer end()
	file, name, err := h.workbook(r)
	if err != nil {
		return err
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(exportTimeout)); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")
	w.Header().Set("Content-Disposition", attachment(name+".xlsx"))
	w.Header().Set("Content-Length", strconv.Itoa(len(file)))
	_, _ = w.Write(file) // the client may have gone
	return nil
}

// workbook returns the workbook of a day, with its name. It ends with the request.
func (h *Handler) workbook(r *web.Request) (file []byte, name string, err error) {
	end, err := h.workbooks.Begin(r.Viewer.User, r.Merchant.Namespace)
	if err != nil {
		return nil, "", err
	}
	defer end()
	e, err := h.newExport(r)
	if err != nil {
		return nil, "", err
	}
	book, err := payments.NewExcel(e.day.Zone())
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, book.Close()) }()
	for lines := 0; ; {
		if lines += len(e.batch.Sessions); lines > maxExcelLines {
			return nil, "", ErrTooManyLines
		}
		for i := range e.batch.Sessions {
			if err := writeLine(book, &e.batch.Sessions[i], e.names); err != nil {
				return nil, "", err
			}
		}
		if book.TextSize() > maxExcelText {
			return nil, "", ErrTooManyLines
		}
		if e.query.Before = e.batch.Next; e.query.Before == (feed.EntryID{}) {
			break
		}
		if e.batch, err = h.exportBatch(r.Context(), r.Merchant, e.test, e.query); err != nil {
			return nil, "", err
		}
	}
	var written bytes.Buffer
	_, err = book.WriteTo(&written)
	return written.Bytes(), e.name, err
}
