package payments

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// columns of the CSV have the names of the API's fields. endedAtLocal is endedAt on the shop's clock, and key the name of the ApiKey. The sum of net is
// what came in, less what went back.
var columns = []string{
	"sessionId", "status", "amountCents", "currency", "amount", "taxCents", "tipCents", "orderRef", "paymentRef", "reason",
	"createdAt", "endedAt", "endedAtLocal", "livemode", "keyId", "key", "kind", "net", "refundRef",
}

// kindPayment is the kind of the line of a session that ended. A movement has its own kind.
const kindPayment = "payment"

// Times are in UTC as RFC 3339 has them; spreadsheets take localTime as a date.
const (
	utcTime   = "2006-01-02T15:04:05.000Z"
	localTime = "2006-01-02 15:04:05"
)

// CSV writes payments as RFC 4180 has it: a header, CRLF, UTF-8.
type CSV struct {
	writer *csv.Writer
	zone   *time.Location
}

// NewCSV writes the header.
func NewCSV(to io.Writer, zone *time.Location) (*CSV, error) {
	c := &CSV{csv.NewWriter(to), zone}
	c.writer.UseCRLF = true
	return c, c.writer.Write(columns)
}

// Write writes the line of a session that ended.
func (c *CSV) Write(payment Payment) error {
	net := int64(0)
	if payment.Status == session.Completed {
		net = payment.AmountCents
	}
	return c.write(payment, kindPayment, net, "")
}

// WriteMovement writes the line of a movement. It has no status, so that a sum over paid sessions leaves it out.
func (c *CSV) WriteMovement(moved Movement) error {
	line := Payment{
		SessionID: moved.SessionID, AmountCents: moved.NetCents(), Currency: moved.Currency, OrderRef: moved.OrderRef, PaymentRef: moved.PaymentRef,
		CreatedAt: moved.CreatedAt, EndedAt: moved.RecordedAt, KeyID: moved.KeyID, Key: moved.Key, Livemode: moved.Livemode,
	}
	return c.write(line, string(moved.Kind), moved.NetCents(), moved.RefundRef)
}

func (c *CSV) write(payment Payment, kind string, net int64, refundRef string) error {
	livemode := payment.Livemode == nil || *payment.Livemode
	ended, local := "", ""
	if at := payment.Ended(); !at.IsZero() {
		ended, local = at.UTC().Format(utcTime), at.In(c.zone).Format(localTime)
	}
	return c.writer.Write([]string{
		payment.SessionID, string(payment.Status), strconv.FormatInt(payment.AmountCents, 10), payment.Currency, payment.Amount(),
		number(payment.TaxCents), number(payment.TipCents), cell(payment.OrderRef), cell(payment.PaymentRef), cell(payment.Reason),
		payment.Created().UTC().Format(utcTime), ended, local, strconv.FormatBool(livemode), payment.KeyID, payment.Key,
		kind, session.FormatAmount(net, payment.Currency), cell(refundRef),
	})
}

// Flush writes what is buffered.
func (c *CSV) Flush() error {
	c.writer.Flush()
	return c.writer.Error()
}

func number(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// cell puts an apostrophe before what a spreadsheet would run as a formula in text of others, and
// before an apostrophe there: at the beginning, and behind what a spreadsheet may take for the end
// of a cell, whatever the file says. Without those apostrophes it is the text.
func cell(text string) string {
	const (
		formula   = "=+-@\t\r\n'" + "＝＋－＠" // the full-width ones are formulas in some locales
		separator = ";|\t"
	)
	var out strings.Builder
	begins := true // a cell, maybe
	for _, r := range text {
		if begins && strings.ContainsRune(formula, r) {
			out.WriteByte('\'')
		}
		out.WriteRune(r)
		begins = strings.ContainsRune(separator, r)
	}
	return out.String()
}
