package payments

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/xuri/excelize/v2"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// MaxExcelLines is the most lines of a workbook: a spreadsheet has 1,048,576 rows, and one of them is the header.
const MaxExcelLines = 1<<20 - 1

// excelColumns are the columns of a workbook: what a bookkeeper needs of the CSV's, under its names. Width is in characters.
var excelColumns = []struct {
	name  string
	width float64
}{
	{"endedAtLocal", 19},
	{"kind", 10},
	{"status", 12},
	{"orderRef", 18},
	{"gross", 12},
	{"refunded", 12},
	{"net", 12},
	{"currency", 9},
	{"tax", 10},
	{"tip", 10},
	{"paymentRef", 24},
	{"refundRef", 24},
	{"reason", 24},
	{"createdAtLocal", 19},
	{"key", 16},
	{"livemode", 9},
	{"sessionId", 38},
}

// Excel writes payments as a workbook of Excel, whose cells have types: an order 0012 keeps its zeros and what looks like a formula is text,
// amounts are numbers with the decimals of their currency, and times are dates on the shop's clock. The lines are in memory until they are
// written.
type Excel struct {
	file  *excelize.File
	sheet *excelize.StreamWriter
	zone  *time.Location
	lines int
	// textSize is of the texts, in bytes.
	textSize int
	// styles of cells: amounts by their decimals.
	text, clock int
	amounts     map[int]int
}

// NewExcel returns a workbook with the header.
func NewExcel(zone *time.Location) (*Excel, error) {
	e := &Excel{file: excelize.NewFile(), zone: zone, amounts: map[int]int{}}
	const sheet = "payments"
	err := e.file.SetSheetName("Sheet1", sheet)
	if err == nil {
		e.sheet, err = e.file.NewStreamWriter(sheet)
	}
	if err == nil {
		err = e.addStyles()
	}
	for i, column := range excelColumns {
		if err == nil {
			err = e.sheet.SetColWidth(i+1, i+1, column.width)
		}
	}
	if err == nil {
		err = e.sheet.SetPanes(&excelize.Panes{Freeze: true, YSplit: 1, TopLeftCell: "A2", ActivePane: "bottomLeft"})
	}
	if err == nil {
		err = e.writeHeader()
	}
	if err != nil {
		return nil, fmt.Errorf("make a workbook: %w", err)
	}
	return e, nil
}

func (e *Excel) addStyles() (err error) {
	const formatText = 49 // @
	if e.text, err = e.file.NewStyle(&excelize.Style{NumFmt: formatText}); err != nil {
		return err
	}
	dates := "yyyy-mm-dd hh:mm:ss"
	if e.clock, err = e.file.NewStyle(&excelize.Style{CustomNumFmt: &dates}); err != nil {
		return err
	}
	for _, digits := range []int{0, 2, 3} {
		numbers := "0"
		if digits > 0 {
			numbers += "." + strings.Repeat("0", digits)
		}
		if e.amounts[digits], err = e.file.NewStyle(&excelize.Style{CustomNumFmt: &numbers}); err != nil {
			return err
		}
	}
	return nil
}

func (e *Excel) writeHeader() error {
	bold, err := e.file.NewStyle(&excelize.Style{Font: &excelize.Font{Bold: true}})
	if err != nil {
		return err
	}
	var header []any
	for _, column := range excelColumns {
		header = append(header, excelize.Cell{StyleID: bold, Value: column.name})
	}
	return e.writeRow(header)
}

// Write writes the line of a session that ended.
func (e *Excel) Write(payment Payment) error { return e.write(paymentEntry(payment)) }

// WriteMovement writes the line of a movement.
func (e *Excel) WriteMovement(moved Movement) error { return e.write(movementEntry(moved)) }

func (e *Excel) write(line entry) error {
	text := func(value string) any {
		if value == "" {
			return nil
		}
		e.textSize += len(value)
		return excelize.Cell{StyleID: e.text, Value: value}
	}
	amount := func(cents int64) any { return e.amount(cents, line.Currency) }
	part := func(cents *int64) any {
		if cents == nil {
			return nil
		}
		return amount(*cents)
	}
	return e.writeRow([]any{
		e.time(line.Ended()), text(line.kind), text(string(line.Status)), text(line.OrderRef), amount(line.gross), amount(line.refunded), amount(line.net()),
		text(line.Currency), part(line.TaxCents), part(line.TipCents), text(line.PaymentRef), text(line.refundRef), text(line.Reason),
		e.time(line.Created()), text(line.Key), line.live(), text(line.SessionID),
	})
}

// TextSize returns the size of the texts in all lines, in bytes: what a line needs beyond some 1.5 kB.
func (e *Excel) TextSize() int { return e.textSize }

// amount is a number: a spreadsheet has the 15 digits that the largest amount of a rail needs.
func (e *Excel) amount(cents int64, currency string) any {
	digits := session.MinorDigits(currency)
	return excelize.Cell{StyleID: e.amounts[digits], Value: float64(cents) / math.Pow10(digits)}
}

// time is a date on the shop's clock. A workbook knows no time zones, so the clock is written as if it were UTC.
func (e *Excel) time(at time.Time) any {
	if at.IsZero() {
		return nil
	}
	at = at.In(e.zone)
	return excelize.Cell{StyleID: e.clock, Value: time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), 0, time.UTC)}
}

// ErrTooManyLines means that a day has more lines than a workbook may have.
var ErrTooManyLines = fmt.Errorf("more than %d lines", MaxExcelLines)

func (e *Excel) writeRow(cells []any) error {
	if e.lines > MaxExcelLines {
		return ErrTooManyLines
	}
	e.lines++
	if err := e.sheet.SetRow(fmt.Sprintf("A%d", e.lines), cells); err != nil {
		return fmt.Errorf("write a line of a workbook: %w", err)
	}
	return nil
}

// WriteTo writes the workbook. Nothing can be added to it then.
func (e *Excel) WriteTo(to io.Writer) (int64, error) {
	if err := e.sheet.Flush(); err != nil {
		return 0, fmt.Errorf("write a workbook: %w", err)
	}
	n, err := e.file.WriteTo(to)
	if err != nil {
		return n, fmt.Errorf("write a workbook: %w", err)
	}
	return n, nil
}

// Close frees the workbook.
func (e *Excel) Close() error { return e.file.Close() }
