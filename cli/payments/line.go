package payments

import (
	"io"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// line is a session or a movement; the other one is nil.
type line struct {
	payment  *payments.Payment
	movement *payments.Movement
}

// lines returns the sessions and movements of the page, the newest first, as each of both lists is.
func (p *page) lines() []line {
	lines := make([]line, 0, len(p.Sessions)+len(p.Movements))
	movements := p.Movements
	for i := range p.Sessions {
		for len(movements) > 0 && movements[0].RecordedAt >= p.Sessions[i].EndedAt {
			lines, movements = append(lines, line{movement: &movements[0]}), movements[1:]
		}
		lines = append(lines, line{payment: &p.Sessions[i]})
	}
	for i := range movements {
		lines = append(lines, line{movement: &movements[i]})
	}
	return lines
}

// visit visits the lines of the page, if each is of a kind that is known here: a sum that leaves out a movement is wrong.
func (p *page) visit(visit func(line) error) error {
	for _, l := range p.lines() {
		if moved := l.movement; moved != nil && moved.Kind != payments.Refused && moved.Kind != payments.Refunded {
			return terminal.Hinted("Install the plugin of the product's version.", "money moved in a way that is unknown here: %q", moved.Kind)
		}
		if err := visit(l); err != nil {
			return err
		}
	}
	return nil
}

// named returns the line with the name of its key.
func (l line) named(keyNames map[string]string) line {
	if l.movement != nil {
		movement := *l.movement
		movement.Key = keyNames[movement.KeyID]
		return line{movement: &movement}
	}
	payment := *l.payment
	payment.Key, payment.QRPayload = keyNames[payment.KeyID], ""
	return line{payment: &payment}
}

func (l line) addTo(sums *payments.Sums) {
	if l.movement != nil {
		sums.AddMovement(*l.movement)
		return
	}
	sums.Add(*l.payment)
}

// linesFile is a file of payments: a CSV or a workbook.
type linesFile interface {
	Write(payment payments.Payment) error
	WriteMovement(moved payments.Movement) error
}

func (l line) writeTo(file linesFile) error {
	if l.movement != nil {
		return file.WriteMovement(*l.movement)
	}
	return file.Write(*l.payment)
}

func formatAmount(cents int64, currency string) string {
	return session.FormatAmount(cents, currency) + " " + currency
}

func writeLines(to io.Writer, all []line, zone *time.Location) error {
	table := terminal.NewTable(to)
	terminal.Row(table, "ENDED", "STATUS", "AMOUNT", "REFUNDED", "NET", "ORDER", "PAYMENT", "SESSION")
	for _, l := range all {
		if moved := l.movement; moved != nil {
			amount, refunded := terminal.None, terminal.None
			if moved.Kind == payments.Refunded {
				refunded = formatAmount(moved.AmountCents, moved.Currency)
			} else {
				amount = formatAmount(moved.AmountCents, moved.Currency)
			}
			terminal.Row(table, shopTime(moved.Recorded(), zone), strings.ToUpper(string(moved.Kind)), amount, refunded, formatAmount(moved.NetCents(), moved.Currency),
				printableOrNone(moved.OrderRef), printableOrNone(moved.PaymentRef), moved.SessionID)
			continue
		}
		payment, net := l.payment, terminal.None
		if payment.Status == session.Completed {
			net = formatAmount(payment.AmountCents, payment.Currency)
		}
		terminal.Row(table, shopTime(payment.Ended(), zone), string(payment.Status), formatAmount(payment.AmountCents, payment.Currency), terminal.None, net,
			printableOrNone(payment.OrderRef), printableOrNone(payment.PaymentRef), payment.SessionID)
	}
	return table.Flush()
}
