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
	Session           session
	ReturnURL         string
}

// patienceOfPayer is how long a payer looks at a page that loads.
const patienceOfPayer = 8 * time.Second

func (b *bank) routes(returnURL string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/pay/{session}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patienceOfPayer)
		defer cancel()
		s, shown := b.look(ctx, r.PathValue("session"))
		if r.Method == http.MethodPost && shown.CanPay {
			shown = b.press(ctx, s, r.PostFormValue("action"))
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
		_ = json.NewEncoder(w).Encode(b.journal.list())
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
func (b *bank) look(ctx context.Context, id string) (session, page) {
	if !sessionID.MatchString(id) {
		return session{}, notFound
	}
	if p, found := b.journal.find(id); found && p.Step != stepSettled { // whatever became of the session: money has moved
		return p.Session, explain(p)
	}
	s, err := b.api.read(ctx, id)
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
func (b *bank) press(ctx context.Context, s session, action string) page {
	if action != "pay" { // no money has moved, and none will under this reference
		if _, err := b.api.settle(ctx, newPayment(s), "FAILED"); err != nil {
			log.Printf("decline session %s: %v", s.ID, err) // it expires
		}
		return page{Heading: "Declined", Text: "You have not paid."}
	}
	p, err := b.pay(ctx, s)
	if err == nil {
		return explain(p)
	}
	log.Printf("pay session %s: %v", s.ID, err)
	var reason apiError
	if errors.As(err, &reason) && refused[reason].Heading != "" {
		return refused[reason]
	}
	if _, now := b.look(ctx, s.ID); !now.CanPay { // the session has ended, or this bank has moved money for it
		return now
	}
	return page{Heading: "Not now", Text: "We cannot move money now. You have not paid.", LookAgain: true}
}

// explain says where the money is that has moved. The reader may be another payer of the same code.
func explain(p payment) page {
	switch {
	case p.Step == stepSettled:
		return page{Heading: "Paid", Text: "The shop knows."}
	case p.Step == stepBack, p.Step == stepConfirmed:
		return page{Heading: "Sent back", Text: "The shop could not take the payment. The money is back."}
	case p.Problem != "":
		return page{Heading: "We are checking this payment", Text: "The money has moved, and we must ask the shop what became of it. Do not pay again."}
	}
	return page{Heading: "We are telling the shop", Text: "The money has moved. Do not pay again: the shop will know soon, or the money comes back.", LookAgain: true}
}

// Amount writes minor units, such as 1250 EUR, as 12.50 EUR. Most currencies have two digits; ask ISO 4217 for the others.
func (s session) Amount() string {
	digits := 2
	switch s.Currency {
	case "CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF", "XPF":
		digits = 0
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		digits = 3
	}
	return fmt.Sprintf("%.*f %s", digits, float64(s.AmountCents)/math.Pow10(digits), s.Currency)
}
