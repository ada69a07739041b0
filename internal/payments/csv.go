package payments

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"
)

// columns of the CSV have the names of the API's fields. endedAtLocal is endedAt on the shop's clock, and key the name of the ApiKey.
var columns = []string{
	"sessionId", "status", "amountCents", "currency", "amount", "taxCents", "tipCents", "orderRef", "paymentRef", "reason",
	"createdAt", "endedAt", "endedAtLocal", "livemode", "keyId", "key",
}

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

// Write writes a line.
func (c *CSV) Write(payment Payment) error {
	livemode := payment.Livemode == nil || *payment.Livemode
	ended, local := "", ""
	if at := payment.Ended(); !at.IsZero() {
		ended, local = at.UTC().Format(utcTime), at.In(c.zone).Format(localTime)
	}
	return c.writer.Write([]string{
		payment.SessionID, string(payment.Status), strconv.FormatInt(payment.AmountCents, 10), payment.Currency, payment.Amount(),
		number(payment.TaxCents), number(payment.TipCents), cell(payment.OrderRef), cell(payment.PaymentRef), cell(payment.Reason),
		payment.Created().UTC().Format(utcTime), ended, local, strconv.FormatBool(livemode), payment.KeyID, payment.Key,
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

// cell puts an apostrophe before text of others that a spreadsheet would run as a formula, and before one that begins with an apostrophe:
// without its first apostrophe it is the text.
func cell(text string) string {
	const formula = "=+-@\t\r\n'" + "＝＋－＠" // the full-width ones are formulas in some locales
	if text != "" && strings.ContainsAny(firstCharacter(text), formula) {
		return "'" + text
	}
	return text
}

func firstCharacter(text string) string {
	for i := range text {
		if i > 0 {
			return text[:i]
		}
	}
	return text
}
