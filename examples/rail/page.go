package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log"
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
	Heading, Text    string
	Merchant, Amount string
	CanPay           bool
	ReturnURL        string
}

func (b *bank) routes(returnURL string) http.Handler {
	mux := http.NewServeMux()
	pay := func(w http.ResponseWriter, r *http.Request) {
		s, shown := b.find(r)
		if r.Method == http.MethodPost && shown.CanPay {
			shown = b.press(r, s)
		}
		if s.ID != "" {
			shown.Merchant, shown.Amount = s.Merchant.DisplayName, amount(s.AmountCents, s.Currency)
			if !shown.CanPay {
				shown.ReturnURL = strings.Replace(returnURL, "{sessionId}", s.ID, 1)
			}
		}
		header := w.Header()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		_ = pageTemplate.Execute(w, shown)
	}
	mux.HandleFunc("GET /pay/{session}", pay)
	mux.HandleFunc("POST /pay/{session}", pay)
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

// find reads the session of a request, and says whether it can be paid.
func (b *bank) find(r *http.Request) (session, page) {
	id := r.PathValue("session")
	if !sessionID.MatchString(id) {
		return session{}, notFound
	}
	s, err := b.api.read(r.Context(), id)
	if p, paying := b.journal.paying(id); paying && p.Step != stepSettled { // whatever became of the session: money has moved
		return s, explain(p)
	}
	switch {
	case errors.As(err, new(*refusal)):
		return session{}, notFound
	case err != nil:
		log.Printf("read session: %v", err)
		return session{}, page{Heading: "Try again in a moment", Text: "We cannot ask the shop now. You have not paid."}
	case s.Status != "PENDING":
		return s, page{Heading: "Nothing to pay", Text: ended[s.Status]}
	case s.Merchant.State != "Active":
		return s, page{Heading: "This shop takes no payments now"}
	}
	return s, page{Heading: "Confirm your payment", CanPay: true}
}

var ended = map[string]string{
	"COMPLETED": "This is paid already.", "FAILED": "This payment has failed. Ask the shop for a new code.",
	"EXPIRED": "This code has expired. Ask the shop for a new one.", "CANCELLED": "The shop has cancelled this payment.",
}

// patienceOfPayer is how long a payer looks at a page that loads.
const patienceOfPayer = 8 * time.Second

// press does what the payer has pressed.
func (b *bank) press(r *http.Request, s session) page {
	if r.PostFormValue("action") != "pay" {
		asking, cancel := context.WithTimeout(r.Context(), patienceOfPayer)
		defer cancel()
		if err := b.decline(asking, s); err != nil {
			log.Printf("decline session %s: %v", s.ID, err)
		}
		return page{Heading: "Declined", Text: "You have not paid."}
	}
	finished, err := b.pay(r.Context(), s)
	if err == nil {
		select {
		case p := <-finished:
			return explain(p)
		case <-time.After(patienceOfPayer):
		}
	} else {
		log.Printf("pay session %s: %v", s.ID, err)
	}
	if _, now := b.find(r); !now.CanPay { // the session has ended, or this bank has moved money for it
		return now
	}
	if refused := new(refusal); errors.As(err, &refused) && refused.code == "held" {
		return page{Heading: "Somebody is paying", Text: "Another payment with this code is under way. You have not paid. Wait a minute, then open this page again."}
	}
	return page{Heading: "Not now", Text: "We cannot move money now. Look at your account before you try again."}
}

// explain says where the money is that has moved. Whoever reads it may be another payer of the same code.
func explain(p payment) page {
	switch p.Step {
	case stepSettled:
		return page{Heading: "Paid", Text: "The shop knows."}
	case stepBack:
		return page{Heading: "Sent back", Text: "The shop could not take the payment. The money is back."}
	case stepCheck:
		return page{Heading: "We are checking this payment", Text: "The money has moved, and we must ask the shop what became of it. Do not pay again."}
	}
	return page{Heading: "We are telling the shop", Text: "The money has moved. Do not pay again: the shop will know soon, or the money comes back."}
}

// amount writes minor units, such as 1250 EUR, as 12.50 EUR. Most currencies have two digits; ask ISO 4217 for the others.
func amount(minor int64, currency string) string {
	digits := 2
	switch currency {
	case "CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF", "XPF":
		return fmt.Sprintf("%d %s", minor, currency)
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		digits = 3
	}
	text := fmt.Sprintf("%0*d", digits+1, minor)
	return text[:len(text)-digits] + "." + text[len(text)-digits:] + " " + currency
}
