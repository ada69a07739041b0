package payments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// Formats that only payments have. A workbook is not text, so it goes to a file and not to stdout.
const (
	formatCSV   = "csv"
	formatTable = "table"
	formatExcel = "xlsx"
)

// sessionsPath is where the API has the sessions of a merchant.
const sessionsPath = "/api/v1/sessions"

const aboutPayments = "They come from the API, with a key of the merchant: from the Secret of an ApiKey, or with --key-stdin or --key-env without a cluster.\n" +
	"A session belongs to the day on which it ended, on the clock of spec.timeZone of the Merchant. Sums are exact."

const aboutMovements = "Rows of their own are payments that a session did not take, and refunds on the day on which they were confirmed. NET, below the sums, is\n" +
	"what came in of a currency, less what went back. With --status there are only sessions."

// dayFlags say which ended sessions.
type dayFlags struct {
	source apiFlags
	day    string
	status statusFlag
	out    *terminal.Output
	file   string // of a workbook; empty: none is made
}

// format is the one of what is written.
func (f *dayFlags) format() string {
	if f.file != "" {
		return formatExcel
	}
	return f.out.Format
}

func (f *dayFlags) add(cmd *cobra.Command, c *commands, format string) {
	f.source.add(cmd, c)
	f.source.addMode(cmd)
	cmd.Flags().StringVar(&f.day, "day", "today", "day of the shop: today, yesterday or one such as 2026-11-22")
	_ = cmd.RegisterFlagCompletionFunc("day", cobra.FixedCompletions([]string{"today", "yesterday"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	cmd.Flags().Var(&f.status, "status", "only sessions with this status: COMPLETED, FAILED, EXPIRED or CANCELLED; empty: all")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(finalStatuses(), cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	f.out = terminal.AddOutput(cmd, formatTable, formatCSV, terminal.FormatJSON)
	flag := cmd.Flags().Lookup("output")
	f.out.Format, flag.DefValue = format, format
	flag.Usage = "output format: table, csv or json"
}

// connect checks what can be checked without the API first.
func (f *dayFlags) connect(cmd *cobra.Command, c *commands, merchant []string) (*api, error) {
	if _, err := f.parse(c, time.UTC); err != nil {
		return nil, err
	}
	return f.source.connect(cmd, c, merchant)
}

func (f *dayFlags) parse(c *commands, zone *time.Location) (payments.Day, error) {
	day, err := payments.ParseDay(f.day, c.now(), zone)
	if err != nil {
		return day, terminal.Usage("Use a form like 2026-11-22.", "--day is %w: %q", err, f.day)
	}
	return day, nil
}

func (c *commands) listPaymentsCommand() *cobra.Command {
	var (
		flags     dayFlags
		order     string
		reference string
		limit     int
	)
	cmd := &cobra.Command{
		Use:   "list [MERCHANT]",
		Short: "List the payments of a day with their sums, those of an order, or that of a receipt",
		Long: "List the sessions that ended on a day, the newest first, with sums by status and currency. With --order it lists the newest 20 of an\n" +
			"order, pending ones too, and with --reference the one whose receipt has that reference.\n\n" + aboutMovements + "\n\n" + aboutPayments,
		Example: "  kubectl merchant payments list acme-coffee -n shops\n" +
			"  kubectl merchant payments list acme-coffee -n shops --day yesterday --status COMPLETED -o json\n" +
			"  kubectl merchant payments list acme-coffee -n shops --order 1001\n" +
			"  kubectl merchant payments list acme-coffee -n shops --reference $REFERENCE\n" +
			"  printenv API_KEY | kubectl merchant payments list --key-stdin",
		Args:              terminal.Arguments("[MERCHANT]"),
		ValidArgsFunction: c.access.CompleteMerchants,
	}
	flags.add(cmd, c, formatTable)
	cmd.Flags().StringVar(&order, "order", "", "list the sessions with this orderRef instead of those of a day")
	cmd.Flags().StringVar(&reference, "reference", "", "list the payment with this reference on the payer's receipt")
	cmd.MarkFlagsMutuallyExclusive("order", "reference")
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of rows of the table; the sums are of all; 0: all rows")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		changed := cmd.Flags().Changed
		switch {
		case limit < 0:
			return terminal.Usage("With 0 it lists all.", "--limit must not be negative")
		case changed("limit") && flags.out.Format != formatTable:
			return terminal.Usage("Leave out one of them.", "--limit is for the table only; csv and json have all rows")
		case order != "" && (changed("day") || changed("status")):
			return terminal.Usage("Leave out --day and --status.", "--order finds the sessions of an order, of whatever day")
		case reference != "" && (changed("day") || changed("status")):
			return terminal.Usage("Leave out --day and --status.", "--reference finds the payment of a receipt, of whatever day")
		}
		if _, ok := session.ParseReference(reference); reference != "" && !ok {
			return terminal.Usage("Give it as the receipt has it, such as PHPG-2J6W.", "--reference is no reference of a receipt: %q", reference)
		}
		if order == "" && reference == "" {
			flags.source.also = v1alpha1.PermissionList
		}
		a, err := flags.connect(cmd, c, args)
		if err != nil {
			return err
		}
		switch {
		case order != "":
			return c.listOrder(cmd.Context(), a, order, flags.out)
		case reference != "":
			return c.listReference(cmd.Context(), a, reference, flags.out)
		}
		return c.listDay(cmd.Context(), a, &flags, limit)
	}
	return cmd
}

func (c *commands) exportPaymentsCommand() *cobra.Command {
	var flags dayFlags
	cmd := &cobra.Command{
		Use:   "export [MERCHANT]",
		Short: "Export the payments and refunds of a day as CSV",
		Long: "Export the sessions that ended on a day as CSV (RFC 4180, UTF-8, with a header), the newest first. Nothing is printed before all is\n" +
			"read: the export is whole, or the exit code is 1 and there is none. If the day is not over yet, a warning says so.\n\n" +
			"An apostrophe stands before what a spreadsheet would take for a formula in text, and before an apostrophe there.\n" +
			"For a person's spreadsheet write a workbook with --file: its texts, amounts and times are cells of their kind, in every language.\n\n" +
			aboutMovements + " The file has the columns and rows of the console's.\n\n" + aboutPayments,
		Example: "  kubectl merchant payments export acme-coffee -n shops --day yesterday > yesterday.csv\n" +
			"  kubectl merchant payments export acme-coffee -n shops --day yesterday --file yesterday.xlsx\n" +
			"  kubectl merchant payments export acme-coffee -n shops --mode Test -o json\n" +
			"  kubectl merchant payments export --key-env --day yesterday",
		Args:              terminal.Arguments("[MERCHANT]"),
		ValidArgsFunction: c.access.CompleteMerchants,
	}
	flags.add(cmd, c, formatCSV)
	cmd.Flags().StringVar(&flags.file, "file", "", "write a workbook of Excel to this file, whose name ends with .xlsx; empty: print")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case flags.file == "":
		case !strings.EqualFold(filepath.Ext(flags.file), "."+formatExcel):
			return terminal.Usage("For csv and json redirect the output: > FILE", "--file must end with .xlsx: %q", flags.file)
		case cmd.Flags().Changed("output"):
			return terminal.Usage("Leave out one of them.", "--file makes a workbook, and -o prints another format")
		}
		flags.source.also = v1alpha1.PermissionList
		a, err := flags.connect(cmd, c, args)
		if err != nil {
			return err
		}
		return c.listDay(cmd.Context(), a, &flags, 0)
	}
	return cmd
}

// dayReport is a day of a merchant; -o json prints it.
type dayReport struct {
	Day      string `json:"day"`
	TimeZone string `json:"timeZone"`
	From     int64  `json:"from"`
	To       int64  `json:"to"`
	// Over: the day has ended, so nothing is added any more.
	Over     bool               `json:"over"`
	Sums     []payments.Sum     `json:"sums"`
	Payments []payments.Payment `json:"payments"`
	// Net and Movements are absent with --status.
	Net       []payments.Net      `json:"net,omitzero"`
	Movements []payments.Movement `json:"movements,omitzero"`

	csv   bytes.Buffer
	excel *payments.Excel // nil: none is made
	zone  *time.Location
	table []line // as many as the table may have
	lines int    // of the day
}

// listDay prints a day. limit bounds the rows of the table; 0: it does not.
func (c *commands) listDay(ctx context.Context, a *api, flags *dayFlags, limit int) error {
	day, err := flags.parse(c, a.zone)
	if err != nil {
		return err
	}
	if today := payments.DayAt(c.now(), a.zone); day.After(today) {
		return terminal.Usage("In "+a.zone.String()+" today is "+today.String()+".", "--day %s has not started", day)
	}
	report, err := a.readDay(ctx, day, flags.status.text, flags.format(), limit)
	incomplete, isIncomplete := errors.AsType[*incompleteError](err)
	if err != nil && (!isIncomplete || flags.out.Format != formatTable) { // a program must not take it for the whole day
		return fmt.Errorf("read the payments of %s: %w", day, err)
	}
	if !report.Over {
		fmt.Fprintf(c.ErrOut, "%s is not over in %s: more can follow.\n", day, a.zone)
	}
	if flags.file != "" {
		return errors.Join(report.writeExcel(flags.file), report.writeSums(c.ErrOut))
	}
	if flags.out.Format == formatCSV {
		_, err := report.csv.WriteTo(c.Out)
		return errors.Join(err, report.writeSums(c.ErrOut))
	}
	if report.lines == 0 && flags.out.Format == formatTable {
		fmt.Fprintf(c.ErrOut, "No payments on %s.\n", day)
	} else if err := flags.out.Write(c.Out, report, report.writeText); err != nil {
		return err
	}
	if isIncomplete {
		return fmt.Errorf("these are not all payments of %s: %w", day, incomplete)
	}
	return nil
}

// writeExcel writes the workbook, whole or not at all.
func (r *dayReport) writeExcel(name string) (err error) {
	file, err := os.CreateTemp(filepath.Dir(name), ".payments-*")
	if err == nil {
		_, err = r.excel.WriteTo(file)
		err = errors.Join(err, file.Close(), r.excel.Close())
		if err == nil {
			err = os.Rename(file.Name(), name)
		}
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// readDay reads a whole day. The report has rows for the format: a CSV, a workbook, or limit payments; 0: all. With an *incompleteError it has what is
// left of the day.
func (a *api) readDay(ctx context.Context, day payments.Day, status, format string, limit int) (*dayReport, error) {
	from, to := day.Bounds()
	report := &dayReport{Day: day.String(), TimeZone: a.zone.String(), From: from.UnixMilli(), To: to.UnixMilli(), Payments: []payments.Payment{}, zone: a.zone}
	file, err := payments.NewCSV(&report.csv, a.zone)
	if err != nil {
		return nil, err
	}
	if format == formatExcel {
		if report.excel, err = payments.NewExcel(a.zone); err != nil {
			return nil, err
		}
	}
	if status == "" {
		report.Movements = []payments.Movement{}
	}
	var sums payments.Sums
	report.Over, err = a.ended(ctx, from, to, status, func(l line) error {
		l = l.named(a.keyNames)
		l.addTo(&sums)
		report.lines++
		switch {
		case format == formatCSV:
			return l.writeTo(file)
		case format == formatExcel:
			return l.writeTo(report.excel)
		case format == formatTable && (limit == 0 || report.lines <= limit):
			report.table = append(report.table, l)
		case format == formatTable:
		case l.movement != nil:
			report.Movements = append(report.Movements, *l.movement)
		default:
			report.Payments = append(report.Payments, *l.payment)
		}
		return nil
	})
	report.Sums = sums.Each()
	if status == "" {
		report.Net = sums.Net()
	}
	return report, errors.Join(err, file.Flush())
}

// writeText writes the table of a day, and its sums.
func (r *dayReport) writeText(to io.Writer) error {
	if err := writeLines(to, r.table, r.zone); err != nil {
		return err
	}
	if left := r.lines - len(r.table); left > 0 {
		fmt.Fprintf(to, "… and %d more; --limit 0 lists them\n", left)
	}
	fmt.Fprintln(to)
	return r.writeSums(to)
}

// writeSums writes the sums of the sessions, and the net sums of a day that has movements.
func (r *dayReport) writeSums(to io.Writer) error {
	table := terminal.NewTable(to)
	for _, sum := range r.Sums {
		terminal.Row(table, string(sum.Status), sum.Amount+" "+sum.Currency, terminal.Plural(sum.Sessions, "session"))
	}
	moved := slices.ContainsFunc(r.Net, func(net payments.Net) bool { return net.RefusedCents != 0 || net.RefundedCents != 0 })
	for _, net := range r.Net {
		if !moved {
			break
		}
		amount := func(cents int64) string { return session.FormatAmount(cents, net.Currency) }
		terminal.Row(table, "NET", net.Amount+" "+net.Currency,
			"gross "+amount(net.PaidCents+net.RefusedCents)+" (paid "+amount(net.PaidCents)+", refused "+amount(net.RefusedCents)+"), refunded "+amount(net.RefundedCents))
	}
	return table.Flush()
}

// page is a page of sessions as the API answers it.
type page struct {
	Sessions []payments.Payment `json:"sessions"`
	// Movements were recorded in the same part of the period in which Sessions ended.
	Movements []payments.Movement `json:"movements,omitempty"`
	Cursor    string              `json:"cursor,omitempty"`
	More      bool                `json:"more,omitempty"`
	// CompleteFrom is the time from which on the list is whole, in ms; 0: it is.
	CompleteFrom int64 `json:"completeFrom,omitempty"`
}

// pageLimit is how many sessions are asked for at a time.
const pageLimit = 200

// incompleteError says that the API does not have all sessions of a day any more.
type incompleteError struct{ since time.Time }

func (e *incompleteError) Error() string {
	return "the API has only what ended since " + e.since.Format(time.DateTime) + "; older ends are deleted (--history and --history-entries of the API)"
}

// ended visits the sessions that ended in the time and, unless a status is given, the movements that were recorded in it, the newest first: all of
// them, or there is an error. It is an *incompleteError after all that are left. It reports whether the time was over, by the API's clock, before the first one was read.
func (a *api) ended(ctx context.Context, from, to time.Time, status string, visit func(line) error) (over bool, err error) {
	query := url.Values{
		"endedFrom": {strconv.FormatInt(from.UnixMilli(), 10)}, "endedTo": {strconv.FormatInt(to.UnixMilli(), 10)}, "limit": {strconv.Itoa(pageLimit)},
	}
	if status != "" {
		query.Set("status", status)
	} else {
		query.Set("movements", "true")
	}
	var incomplete error
	for first := true; ; first = false {
		var p page
		header, err := a.get(ctx, sessionsPath, query, patience, &p)
		if err != nil {
			return false, withAdvice(err)
		}
		if date, err := http.ParseTime(header.Get("Date")); first && err == nil {
			over = !date.Before(to)
		}
		if err := p.visit(visit); err != nil {
			return false, err
		}
		if p.CompleteFrom > from.UnixMilli() {
			incomplete = &incompleteError{time.UnixMilli(p.CompleteFrom).In(a.zone)}
		}
		if p.Cursor == "" {
			return over, incomplete
		}
		if p.Cursor == query.Get("cursor") {
			return false, errors.New("the API answers with the same cursor again")
		}
		query.Set("cursor", p.Cursor)
		if !sleep(ctx, restFor(header)) {
			return false, ctx.Err()
		}
	}
}

// quota is how the API says what is left of the merchant's limit.
var quota = regexp.MustCompile(`^"[a-z]+";[rq]=(\d+);`)

// restFor is a pause that leaves half of the merchant's requests to its tills.
func restFor(header http.Header) time.Duration {
	const pause = 250 * time.Millisecond
	left, all := quota.FindStringSubmatch(header.Get("RateLimit")), quota.FindStringSubmatch(header.Get("RateLimit-Policy"))
	if left == nil || all == nil {
		return 0
	}
	remaining, _ := strconv.Atoi(left[1]) // they are digits
	burst, _ := strconv.Atoi(all[1])
	if remaining > burst/2 {
		return 0
	}
	return pause
}

// orderReport is the sessions of an order; -o json prints it.
type orderReport struct {
	OrderRef string             `json:"orderRef"`
	Payments []payments.Payment `json:"payments"`
	More     bool               `json:"more"` // there are older ones
}

// listOrder prints the newest sessions of an order.
func (c *commands) listOrder(ctx context.Context, a *api, order string, out *terminal.Output) error {
	var found page
	if _, err := a.get(ctx, sessionsPath, url.Values{"orderRef": {order}}, patience, &found); err != nil {
		return fmt.Errorf("find the sessions of order %q: %w", order, withAdvice(err))
	}
	if found.More {
		fmt.Fprintln(c.ErrOut, "Only the newest are listed.")
	}
	if len(found.Sessions) == 0 && out.Format == formatTable {
		fmt.Fprintf(c.ErrOut, "No session has the orderRef %q.\n", order)
		return nil
	}
	found.name(a)
	return c.writeFound(a, out, &found, orderReport{order, slices.Concat([]payments.Payment{}, found.Sessions), found.More})
}

// name completes the sessions of a page with what the API does not know, and drops what only the API shows.
func (p *page) name(a *api) {
	for i := range p.Sessions {
		p.Sessions[i].Key, p.Sessions[i].QRPayload = a.keyNames[p.Sessions[i].KeyID], ""
	}
}

// writeFound prints sessions that were searched for; report is for -o json.
func (c *commands) writeFound(a *api, out *terminal.Output, found *page, report any) error {
	if out.Format == formatCSV {
		file, err := payments.NewCSV(c.Out, a.zone)
		for _, payment := range found.Sessions {
			err = errors.Join(err, file.Write(payment))
		}
		return errors.Join(err, file.Flush())
	}
	return out.Write(c.Out, report, func(to io.Writer) error { return writeLines(to, found.lines(), a.zone) })
}

// referenceReport is the payment of a receipt, or rarely several; -o json prints it.
type referenceReport struct {
	Reference string             `json:"reference"`
	Payments  []payments.Payment `json:"payments"`
}

// listReference prints the payment of a receipt.
func (c *commands) listReference(ctx context.Context, a *api, reference string, out *terminal.Output) error {
	var found page
	query := url.Values{"reference": {reference}}
	for {
		var next page
		if _, err := a.get(ctx, sessionsPath, query, patience, &next); err != nil {
			return fmt.Errorf("find the payment with the reference %q: %w", reference, withAdvice(err))
		}
		found.Sessions = append(found.Sessions, next.Sessions...)
		if next.CompleteFrom != 0 && len(found.Sessions) == 0 {
			kept := &incompleteError{time.UnixMilli(next.CompleteFrom).In(a.zone)}
			return fmt.Errorf("the receipt with the reference %q may be older than what can be searched: %w", reference, kept)
		}
		if next.Cursor == "" {
			break
		}
		query.Set("cursor", next.Cursor)
	}
	if len(found.Sessions) == 0 && out.Format == formatTable {
		fmt.Fprintf(c.ErrOut, "No receipt has the reference %q.\n", reference)
		return nil
	}
	found.name(a)
	return c.writeFound(a, out, &found, referenceReport{reference, slices.Concat([]payments.Payment{}, found.Sessions)})
}

// shopTime is a time on the clock of the shop.
func shopTime(at time.Time, zone *time.Location) string {
	if at.IsZero() {
		return terminal.None
	}
	return at.In(zone).Format(time.DateTime)
}

func printableOrNone(text string) string {
	if text == "" {
		return terminal.None
	}
	return terminal.Printable(text)
}

func (c *commands) showPaymentCommand() *cobra.Command {
	var source apiFlags
	cmd := &cobra.Command{
		Use:   "show SESSION_ID",
		Short: "Show a payment",
		Long:  "Show a session of a merchant in the namespace. " + aboutPayments,
		Example: "  kubectl merchant payments show $SESSION_ID -n shops\n" +
			"  kubectl merchant payments show $SESSION_ID --key-env -o json",
		Args: terminal.Arguments("SESSION_ID"),
	}
	source.add(cmd, c)
	out := terminal.AddOutput(cmd, formatTable, terminal.FormatJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := parseSession(args[0])
		if err != nil {
			return err
		}
		a, err := source.connectToOwner(cmd, c, id)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := a.readSession(cmd.Context(), id, &raw); err != nil {
			return err
		}
		var payment payments.Payment
		if err := json.Unmarshal(raw, &payment); err != nil {
			return fmt.Errorf("read session %s: %w", id, err)
		}
		payment.Key = a.keyNames[payment.KeyID]
		return out.Write(c.Out, raw, func(to io.Writer) error { return writePayment(to, payment, a.zone) })
	}
	return cmd
}

func parseSession(text string) (session.ID, error) {
	id, err := session.ParseID(text)
	if err != nil {
		return id, terminal.Usage("It begins with ps_ and is in the answer of the API that created the session.", "%q is not the id of a session", text)
	}
	return id, nil
}

// readSession reads a session of the merchant.
func (a *api) readSession(ctx context.Context, id session.ID, answer any) error {
	_, err := a.get(ctx, sessionsPath+"/"+id.String(), nil, patience, answer)
	if refused, ok := errors.AsType[*apiError](err); ok && refused.status == http.StatusNotFound {
		return a.noSession(id)
	}
	if err != nil {
		return fmt.Errorf("read session %s: %w", id, err)
	}
	return nil
}

func (a *api) noSession(id session.ID) error {
	return terminal.Hinted("A session is kept for days after its end; payments list --day has it for longer.", "%s has no session %s", a.merchant.Name, id)
}

func writePayment(to io.Writer, payment payments.Payment, zone *time.Location) error {
	amount := payment.Amount() + " " + payment.Currency
	if payment.TaxCents != nil {
		amount += ", tax " + session.FormatAmount(*payment.TaxCents, payment.Currency)
	}
	if payment.TipCents != nil {
		amount += ", tip " + session.FormatAmount(*payment.TipCents, payment.Currency)
	}
	lines := [][2]string{
		{"Session", payment.SessionID},
		{"Status", string(payment.Status)},
		{"Amount", amount},
		{"Order", terminal.Printable(payment.OrderRef)},
		{"Description", terminal.Printable(payment.Description)},
		{"Payment", terminal.Printable(payment.PaymentRef)},
		{"Reason", terminal.Printable(payment.Reason)},
		{"Created", shopTime(payment.Created(), zone) + " " + zone.String()},
		{"Ended", shopTime(payment.Ended(), zone)},
		{"Key", payment.Key},
		{"Key id", payment.KeyID},
	}
	for _, request := range payment.RefundRequests {
		line := session.FormatAmount(request.AmountCents, payment.Currency) + " " + payment.Currency + ", refund " + terminal.Printable(request.RefundID) +
			", " + shopTime(request.Requested(), zone) + ": " + refundState(request, zone)
		if request.Reason != "" {
			line += "; " + terminal.Printable(request.Reason)
		}
		lines = append(lines, [2]string{"Asked for", line})
	}
	for _, part := range payment.Payments {
		money := func(cents int64) string { return session.FormatAmount(cents, part.Currency) + " " + part.Currency }
		if part.Refused {
			lines = append(lines, [2]string{"Refused", money(part.AmountCents) + ", payment " + terminal.Printable(part.PaymentRef) + ", to refund: " + money(part.AmountCents-part.RefundedCents)})
		}
		for _, refund := range part.Refunds {
			lines = append(lines, [2]string{
				"Refunded", money(refund.AmountCents) + " of payment " + terminal.Printable(part.PaymentRef) + ", refund " + terminal.Printable(refund.RefundRef) + ", " + shopTime(refund.Refunded(), zone),
			})
		}
	}
	table := terminal.NewTable(to)
	for _, line := range lines {
		if line[1] != "" {
			terminal.Row(table, line[0], line[1])
		}
	}
	return table.Flush()
}

// statusFlag is the flag --status.
type statusFlag struct{ text string }

func finalStatuses() []string {
	return []string{string(session.Completed), string(session.Failed), string(session.Expired), string(session.Cancelled)}
}

// String returns the value of the flag.
func (s *statusFlag) String() string { return s.text }

// Type is the name of the value in --help.
func (*statusFlag) Type() string { return "status" }

// Set reads a status in which a session has ended.
func (s *statusFlag) Set(text string) error {
	text = strings.ToUpper(text)
	if !slices.Contains(finalStatuses(), text) {
		return fmt.Errorf("%q is not one of %s", text, strings.Join(finalStatuses(), ", "))
	}
	s.text = text
	return nil
}
