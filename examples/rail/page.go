package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log"
	"math"
	"net/http"
	"regexp"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the payer sees.
type page struct {
	Heading, Text     string
	CanPay, LookAgain bool
	CanClose          bool // the account that has paid
	Session           session
	ReturnURL         string
}

// patienceOfPayer is how long a payer looks at a page that loads.
const patienceOfPayer = 8 * time.Second

func (r *rail) routes(returnURL string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/pay/{session}", func(w http.ResponseWriter, request *http.Request) {
		ctx, cancel := context.WithTimeout(request.Context(), patienceOfPayer)
		defer cancel()
		s, shown := r.look(ctx, request.PathValue("session"))
		switch action := request.PostFormValue("action"); {
		case request.Method != http.MethodPost:
		case shown.CanPay:
			shown = r.press(ctx, s, action)
		case shown.CanClose && action == "close":
			shown = r.closeAccount(s)
		}
		shown.Session, shown.ReturnURL = s, strings.Replace(returnURL, "{sessionId}", s.ID, 1)
		header := w.Header()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		_ = pageTemplate.Execute(w, shown)
	})
	mux.HandleFunc("GET /payments", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.list())
	})
	// Only this bank's own page may press its buttons.
	return http.NewCrossOriginProtection().Handler(http.MaxBytesHandler(mux, 1<<10))
}

// sessionID is the syntax of ids. Those of test mode begin with ps_test: nobody delivers anything for them, so a bank must not pay them.
var sessionID = regexp.MustCompile(`^ps_[a-z2-7]{12}[0-9A-Za-z]{18}$`)

var notFound = page{Heading: "Payment not found", Text: "Check the link, or scan the code again."}

var ended = map[string]page{
	"COMPLETED": {Heading: "Nothing to pay", Text: "This is paid already."},
	"FAILED":    {Heading: "Nothing to pay", Text: "This payment has failed. Ask the shop for a new code."},
	"EXPIRED":   {Heading: "Too late", Text: "This code has expired. You have not paid. Ask the shop for a new one."},
	"CANCELLED": {Heading: "Nothing to pay", Text: "The shop has cancelled this payment."},
}

// look reads a session, and says whether it can be paid.
func (r *rail) look(ctx context.Context, id string) (session, page) {
	if !sessionID.MatchString(id) {
		return session{}, notFound
	}
	if p, found := r.find(id); found && p.Step != stepSettled { // whatever became of the session: money has moved
		return p.Session, explain(p)
	} else if found {
		paid := ended["COMPLETED"]
		if p.BackCents > 0 {
			paid.Text = explain(p).Text
		}
		paid.CanClose = !p.Closed
		return p.Session, paid
	}
	s, err := r.api.read(ctx, id)
	switch {
	case errors.As(err, new(apiError)):
		return session{}, notFound
	case err != nil:
		return session{}, page{Heading: "Try again in a moment", Text: "We cannot ask the shop now. You have not paid.", LookAgain: true}
	case s.Status != "PENDING":
		return s, ended[s.Status]
	case s.Merchant.State != "Active":
		return s, page{Heading: "This shop takes no payments now", Text: "You have not paid. Ask the shop."}
	}
	return s, page{Heading: "Confirm your payment", CanPay: true}
}

// refused is what the payer reads when the session cannot be held. No money has moved.
var refused = map[apiError]page{
	"held":             {Heading: "Somebody is paying", Text: "Another payment with this code is under way. You have not paid.", LookAgain: true},
	"expires_too_soon": {Heading: "Too late", Text: "This code is about to expire. You have not paid. Ask the shop for a new one."},
}

// press does what the payer has pressed.
func (r *rail) press(ctx context.Context, s session, action string) page {
	if action != "pay" { // no money has moved, and none will under this reference
		if _, err := r.api.settle(ctx, newPayment(s), "FAILED"); err != nil {
			log.Printf("decline session %s: %v", s.ID, err) // it expires
		}
		return page{Heading: "Declined", Text: "You have not paid."}
	}
	p, err := r.pay(ctx, s)
	if err == nil {
		return explain(p)
	}
	log.Printf("pay session %s: %v", s.ID, err)
	var reason apiError
	if errors.As(err, &reason) && refused[reason].Heading != "" {
		return refused[reason]
	}
	if _, now := r.look(ctx, s.ID); !now.CanPay { // the session has ended, or this bank has moved money for it
		return now
	}
	return page{Heading: "Not now", Text: "We cannot move money now. You have not paid.", LookAgain: true}
}

// closeAccount closes the account that has paid a session, so that the bank rejects what the shop wants to give back.
func (r *rail) closeAccount(s session) page {
	p, _ := r.find(s.ID)
	r.books.closeAccount(p.Ref)
	return page{Heading: "Account closed", Text: "It takes no money back any more."}
}

// explain says where the money is that has moved. The reader may be another payer of the same code.
func explain(p payment) page {
	switch {
	case p.Step == stepSettled && p.BackCents > 0:
		return page{Heading: "Paid", Text: "The shop gave " + amount(p.BackCents, p.Session.Currency) + " back.", CanClose: !p.Closed}
	case p.Step == stepSettled:
		return page{Heading: "Paid", Text: "The shop knows.", CanClose: !p.Closed}
	case p.Step == stepRefused && p.BackCents == p.Session.AmountCents:
		return page{Heading: "Sent back", Text: "The shop could not take the payment. The money is back."}
	case p.Problem != "":
		return page{Heading: "We are checking this payment", Text: "The money has moved, and we must ask the shop what became of it. Do not pay again."}
	}
	return page{Heading: "We are telling the shop", Text: "The money has moved. Do not pay again: the shop will know soon, or the money comes back.", LookAgain: true}
}

// Amount is what the session costs.
func (s session) Amount() string { return amount(s.AmountCents, s.Currency) }

// amount writes minor units, such as 1250 EUR, as 12.50 EUR. Most currencies have two digits; ask ISO 4217 for the others.
func amount(cents int64, currency string) string {
	digits := 2
	switch currency {
	case "CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF", "XPF":
		digits = 0
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		digits = 3
	}
	return fmt.Sprintf("%.*f %s", digits, float64(cents)/math.Pow10(digits), currency)
}
