// Package page renders what a payer sees: the page of a payment in the payer's language, its stylesheet and script, and the QR code.
// It knows neither Redis nor requests.
package page

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/locale"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

//go:embed page.html page.css page.js problem.js statusclient.js widget.js texts/*.json
var files embed.FS

// Pages renders pages. It is immutable, and safe for concurrent use.
type Pages struct {
	templates    *template.Template
	translations []translation
	languages    locale.Matcher
	style        stylesheet
	script       Asset
	retry        Asset // the script of pages about an error that passes
	widget       Asset
	problems     sync.Map // of Asset, by problemKey: anyone can ask for them, at any rate
}

// problemKey is what pages without a payment differ in.
type problemKey struct {
	lang   string
	status int
}

// New reads the embedded templates, texts and assets.
func New() (*Pages, error) {
	p := &Pages{}
	var err error
	if p.templates, err = template.ParseFS(files, "page.html"); err != nil {
		return nil, fmt.Errorf("parse page.html: %w", err)
	}
	if p.translations, p.languages, err = readTranslations(); err != nil {
		return nil, err
	}
	if p.style, err = newStylesheet(); err != nil {
		return nil, err
	}
	if p.script, err = newScript(scriptFile, "statusclient.js", scriptFile); err != nil {
		return nil, err
	}
	if p.retry, err = newScript(retryFile, retryFile); err != nil {
		return nil, err
	}
	p.widget, err = newWidget(p.translations)
	return p, err
}

// Payment is what the page shows of a session.
type Payment struct {
	ID           session.ID
	MerchantName string
	// Description is what the shop says about the payment; empty: nothing.
	Description string
	AmountCents int64
	// Currency is an ISO 4217 code.
	Currency string
	Status   session.Status
	// ExpiresIn is the time left to pay.
	ExpiresIn time.Duration
	// Receipt is what the page of a paid session also shows.
	Receipt Receipt
	// Refused are payments that the session did not take, in the order in which they are shown. RefusedUnread: there are some that were not read.
	Refused       []RefusedPayment
	RefusedUnread bool
	// Payload opens the payment app, unless AppURL is set, which comes from a template that CheckAppURL accepts. QRText is what the QR
	// code holds: the payload, or the address of the page.
	Payload, AppURL, QRText string
	// AccentColor is "#rrggbb", and ReturnURL an https URL; both may be empty.
	AccentColor, ReturnURL string
}

// Playable reports whether the page has a form that plays the rail: that of a test session which can still be paid.
func (p *Payment) Playable() bool { return p.ID.TestMode() && p.Status == session.Pending }

// Receipt is what the page of a paid session shows besides merchant and amount. What is zero is left out.
type Receipt struct {
	TaxCents, TipCents int64
	// RefundedCents is how much of the payment went back.
	RefundedCents int64
	// PaidAt is in the time zone of the merchant.
	PaidAt time.Time
	// Order is the orderRef, if its merchant shows it.
	Order string
}

// RefusedPayment is money that came in and goes back, whatever became of the session.
type RefusedPayment struct {
	AmountCents int64
	Currency    string
	// WentBack: all of it has been refunded.
	WentBack bool
}

// Path is the path of a session's page.
func Path(id session.ID) string { return "/pay/" + id.String() }

// paymentPage is what the template needs of a payment.
type paymentPage struct {
	head

	Path, StatusURL  string
	Merchant, Amount string
	Description      string
	Status           session.Status
	Refused          []notice
	RefusedUnread    bool
	States           []state
	Test, Playable   bool  // no money is meant; buttons play the rail
	ExpiresIn        int64 // seconds
	TimeLeft         string
	OpenApp          template.URL
	QR               Code
	ReturnURL        string
}

// head is what all pages have.
type head struct {
	translation

	Title      string
	Stylesheet string
	Script     string
}

// state is one section of the page.
type state struct {
	Status  session.Status
	Heading string
	Title   string // of the document
	Warning string // what matters most
	Receipt []receiptRow
	Texts   []string
	Hidden  bool
	Icon    string // done, stop or over
}

// notice is a sentence with an amount in it, which may be of another direction.
type notice struct{ Before, Amount, After string }

// newNotices returns a sentence for each refused payment. On the page of a paid session the sentence says "another payment":
// the payer must not take the refused payment for the payment that completed the session.
func newNotices(in translation, payment *Payment) (notices []notice) {
	received, wentBack := in.Received, in.WentBack
	if payment.Status == session.Completed {
		received, wentBack = in.ReceivedAnother, in.AnotherWentBack
	}
	for _, refused := range payment.Refused {
		sentence := received
		if refused.WentBack {
			sentence = wentBack
		}
		before, after, _ := strings.Cut(sentence, "{amount}")
		notices = append(notices, notice{before, in.amounts.Format(refused.AmountCents, refused.Currency), after})
	}
	return notices
}

// receiptRow is a row of the receipt.
type receiptRow struct{ Name, Value string }

// receiptTime is for every language, and for a person who reads it in another zone than that of the shop.
const receiptTime = "2006-01-02 15:04 MST"

func newReceipt(in translation, payment *Payment) (rows []receiptRow) {
	receipt := payment.Receipt
	for _, amount := range []struct {
		name  string
		cents int64
	}{{in.Refunded, receipt.RefundedCents}, {in.Tax, receipt.TaxCents}, {in.Tip, receipt.TipCents}} {
		if amount.cents > 0 {
			rows = append(rows, receiptRow{amount.name, in.amounts.Format(amount.cents, payment.Currency)})
		}
	}
	if receipt.Order != "" {
		rows = append(rows, receiptRow{in.Order, receipt.Order})
	}
	if !receipt.PaidAt.IsZero() {
		reference := session.NewReference(payment.ID, receipt.PaidAt).String()
		rows = append(rows, receiptRow{in.Reference, reference}, receiptRow{in.PaidAt, receipt.PaidAt.Format(receiptTime)})
	}
	return rows
}

// Payment renders the page of a payment in the language that fits the header Accept-Language best.
func (p *Pages) Payment(acceptLanguage string, payment *Payment) ([]byte, error) {
	in := p.translation(acceptLanguage)
	page := paymentPage{
		head:        head{in, "", p.style.path(payment.AccentColor), p.script.Path},
		Path:        Path(payment.ID),
		StatusURL:   "/api/v1/public/sessions/" + payment.ID.String(),
		Merchant:    payment.MerchantName,
		Amount:      in.amounts.Format(payment.AmountCents, payment.Currency),
		Description: payment.Description,
		Status:      payment.Status,
		Refused:     newNotices(in, payment),
		States:      newStates(in, payment),
		Test:        payment.ID.TestMode(),
		Playable:    payment.Playable(),
		ExpiresIn:   int64((payment.ExpiresIn + time.Second - 1) / time.Second),
	}
	page.Title = page.States[slices.IndexFunc(page.States, func(s state) bool { return !s.Hidden })].Title
	page.TimeLeft, page.RefusedUnread = clock(page.ExpiresIn), payment.RefusedUnread
	if returns, err := url.Parse(payment.ReturnURL); err == nil && returns.Scheme == "https" {
		page.ReturnURL = payment.ReturnURL
	}
	if payment.Status == session.Pending {
		var err error
		if page.OpenApp, err = payment.openApp(); err != nil {
			return nil, err
		}
		if page.QR, err = NewCode(payment.QRText); err != nil {
			return nil, err
		}
	}
	return p.render("payment", page)
}

// newStates are the sections of a page: all of them while the session is pending, so that the page needs no reload; then only its own.
func newStates(in translation, payment *Payment) []state {
	paid := state{Status: session.Completed, Heading: in.Paid, Receipt: newReceipt(in, payment), Texts: []string{in.PaidText}, Icon: "done"}
	if payment.Receipt.RefundedCents >= payment.AmountCents {
		paid.Heading, paid.Texts = in.Refunded, nil
	}
	all := []state{
		{Status: session.Pending, Heading: in.Scan, Texts: []string{in.ScanText}},
		paid,
		{Status: session.Failed, Heading: in.Failed, Warning: in.AlreadyPaid, Texts: []string{in.FailedText}, Icon: "stop"},
		{Status: session.Expired, Heading: in.Expired, Warning: in.AlreadyPaid, Texts: []string{in.LateRefund, in.NotPaid}, Icon: "over"},
		{Status: session.Cancelled, Heading: in.Cancelled, Warning: in.AlreadyPaid, Texts: []string{in.CancelledText, in.LateRefund}, Icon: "stop"},
	}
	var states []state
	for _, s := range all {
		s.Hidden = s.Status != payment.Status
		if s.Hidden && payment.Status != session.Pending {
			continue
		}
		// The name may be of another direction than the heading. A title has no markup, so characters isolate it.
		const firstStrongIsolate, popIsolate = "\u2068", "\u2069"
		s.Title = s.Heading + " · " + firstStrongIsolate + payment.MerchantName + popIsolate
		if payment.ID.TestMode() {
			s.Title = in.TestMode + " " + s.Title
		}
		states = append(states, s)
	}
	return states
}

// problemPage is what the template needs of a page without a payment.
type problemPage struct {
	head

	Texts []string
	Again bool // offer to check again, and do so
}

// Problem returns the page for a session that cannot be shown: 404, 429, or any other status for a service that is unavailable. It renders
// each page once.
func (p *Pages) Problem(acceptLanguage string, status int) (Asset, error) {
	in := p.translation(acceptLanguage)
	if status != http.StatusNotFound && status != http.StatusTooManyRequests {
		status = http.StatusServiceUnavailable
	}
	key := problemKey{in.Lang, status}
	if known, ok := p.problems.Load(key); ok {
		return known.(Asset), nil //nolint:forcetypeassert // Store below stores nothing else
	}
	rendered, err := p.renderProblem(in, status)
	if err != nil {
		return Asset{}, err
	}
	asset := Asset{ContentType: htmlContent, Content: rendered}
	if asset.Gzipped, err = compress(rendered); err != nil {
		return Asset{}, err
	}
	p.problems.Store(key, asset)
	return asset, nil
}

const htmlContent = "text/html; charset=utf-8"

func (p *Pages) renderProblem(in translation, status int) ([]byte, error) {
	page := problemPage{head: head{in, in.Unavailable, p.style.path(""), p.retry.Path}, Texts: []string{in.UnavailableText, in.AlreadyPaid}, Again: true}
	switch status {
	case http.StatusNotFound:
		page.Title, page.Texts, page.Script, page.Again = in.NotFound, []string{in.NotFoundText, in.AlreadyPaid}, "", false
	case http.StatusTooManyRequests:
		page.Title, page.Texts = in.Limited, []string{in.LimitedText}
	}
	return p.render("problem", page)
}

func (p *Pages) render(name string, page any) ([]byte, error) {
	var rendered bytes.Buffer
	if err := p.templates.ExecuteTemplate(&rendered, name, page); err != nil {
		return nil, fmt.Errorf("render the %s page: %w", name, err)
	}
	return rendered.Bytes(), nil
}

// clock writes seconds as 9:05 or 1:09:05, which needs no translation. page.js does the same.
func clock(seconds int64) string {
	hours, minutes, seconds := seconds/3600, seconds/60%60, seconds%60
	if hours > 0 {
		return fmt.Sprintf("%d:%02d:%02d", hours, minutes, seconds)
	}
	return fmt.Sprintf("%d:%02d", minutes, seconds)
}
