package payments

import (
	"bufio"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// columns of the CSV have the names of the API's fields. endedAtLocal is endedAt on the shop's clock, and key the name of the ApiKey. The sum of gross
// is what came in, that of refunded what went back, and that of net the first less the second.
var columns = []string{
	"sessionId", "status", "amountCents", "currency", "amount", "taxCents", "tipCents", "orderRef", "paymentRef", "reason",
	"createdAt", "endedAt", "endedAtLocal", "livemode", "keyId", "key", "kind", "net", "refundRef", "gross", "refunded",
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
	out  *bufio.Writer
	zone *time.Location
}

// NewCSV writes the header.
func NewCSV(to io.Writer, zone *time.Location) (*CSV, error) {
	c := &CSV{bufio.NewWriter(to), zone}
	err := c.writeRow(columns)
	return c, err
}

// separators are what spreadsheets take for the end of a cell besides the comma, whatever the file says: LibreOffice by default the semicolon and the
// tab too.
const separators = ";|\t"

// writeRow quotes also texts with one of the separators: an order 10;20 must not move the amounts behind it into other columns. encoding/csv does not.
func (c *CSV) writeRow(fields []string) error {
	for i, field := range fields {
		if i > 0 {
			_ = c.out.WriteByte(',') // the last write returns the error of each
		}
		if strings.ContainsAny(field, `,"`+"\r\n"+separators) || strings.TrimSpace(field) != field {
			field = strings.NewReplacer(`"`, `""`, "\r", "", "\n", "\r\n").Replace(field)
			field = `"` + field + `"`
		}
		_, _ = c.out.WriteString(field)
	}
	_, err := c.out.WriteString("\r\n")
	return err
}

// entry is a line of a file: a session that ended, or a movement.
type entry struct {
	Payment

	kind, refundRef string
	// gross came in and refunded went back, in the currency's minor unit.
	gross, refunded int64
}

func (e entry) net() int64 { return e.gross - e.refunded }

// live reports whether the money is real.
func (e entry) live() bool { return e.Livemode == nil || *e.Livemode }

func paymentEntry(payment Payment) entry {
	e := entry{Payment: payment, kind: kindPayment}
	if payment.Status == session.Completed {
		e.gross = payment.AmountCents
	}
	return e
}

// movementEntry has no status, so that a sum over paid sessions leaves it out.
func movementEntry(moved Movement) entry {
	e := entry{kind: string(moved.Kind), refundRef: moved.RefundRef, Payment: Payment{
		SessionID: moved.SessionID, AmountCents: moved.NetCents(), Currency: moved.Currency, OrderRef: moved.OrderRef, PaymentRef: moved.PaymentRef,
		CreatedAt: moved.CreatedAt, EndedAt: moved.RecordedAt, KeyID: moved.KeyID, Key: moved.Key, Livemode: moved.Livemode,
	}}
	if moved.Kind == Refunded {
		e.refunded = moved.AmountCents
	} else {
		e.gross = moved.AmountCents
	}
	return e
}

// Write writes the line of a session that ended.
func (c *CSV) Write(payment Payment) error { return c.write(paymentEntry(payment)) }

// WriteMovement writes the line of a movement.
func (c *CSV) WriteMovement(moved Movement) error { return c.write(movementEntry(moved)) }

func (c *CSV) write(payment entry) error {
	ended, local := "", ""
	if at := payment.Ended(); !at.IsZero() {
		ended, local = at.UTC().Format(utcTime), at.In(c.zone).Format(localTime)
	}
	return c.writeRow([]string{
		payment.SessionID, string(payment.Status), strconv.FormatInt(payment.AmountCents, 10), payment.Currency, payment.Amount(),
		number(payment.TaxCents), number(payment.TipCents), cell(payment.OrderRef), cell(payment.PaymentRef), cell(payment.Reason),
		payment.Created().UTC().Format(utcTime), ended, local, strconv.FormatBool(payment.live()), payment.KeyID, payment.Key,
		payment.kind, session.FormatAmount(payment.net(), payment.Currency), cell(payment.refundRef),
		session.FormatAmount(payment.gross, payment.Currency), session.FormatAmount(payment.refunded, payment.Currency),
	})
}

// Flush writes what is buffered.
func (c *CSV) Flush() error {
	return c.out.Flush()
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
	const formula = "=+-@\t\r\n'" + "＝＋－＠" // the full-width ones are formulas in some locales
	var out strings.Builder
	begins := true // a cell, maybe
	for _, r := range text {
		if begins && strings.ContainsRune(formula, r) {
			out.WriteByte('\'')
		}
		out.WriteRune(r)
		begins = strings.ContainsRune(separators, r)
	}
	return out.String()
}
