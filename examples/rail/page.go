package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"html/template"
	"log"
	"net/http"
	"regexp"
	"strconv"
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

// sessionID is the syntax of ids. Those of test mode begin with ps_test: nobody delivers anything for them, so a bank must not pay them.
var sessionID = regexp.MustCompile(`^ps_[a-z2-7]{12}[0-9A-Za-z]{18}$`)

func (b *bank) routes(returnURL string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pay/{session}", func(w http.ResponseWriter, r *http.Request) {
		s, shown := b.find(r)
		respond(w, r, s, shown, returnURL)
	})
	mux.HandleFunc("POST /pay/{session}", func(w http.ResponseWriter, r *http.Request) {
		s, shown := b.find(r)
		if shown.CanPay {
			shown = b.act(r, s)
		}
		respond(w, r, s, shown, returnURL)
	})
	mux.HandleFunc("GET /payments", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(b.journal.list())
	})
	// Only this bank's own page may press its buttons.
	return http.NewCrossOriginProtection().Handler(http.MaxBytesHandler(mux, 1<<10))
}

// find reads the session of a request, and says whether it can be paid. Money that may have moved is not for this page to judge.
func (b *bank) find(r *http.Request) (session, page) {
	if !sessionID.MatchString(r.PathValue("session")) {
		return session{}, page{Heading: "Payment not found", Text: "Check the link, or scan the code again."}
	}
	s, err := b.api.read(r.Context(), r.PathValue("session"))
	switch {
	case errors.As(err, new(*refusal)):
		return session{}, page{Heading: "Payment not found", Text: "Check the link, or scan the code again."}
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

// act does what the payer has pressed.
func (b *bank) act(r *http.Request, s session) page {
	if r.PostFormValue("action") != "pay" {
		if err := b.decline(r.Context(), s); err != nil {
			log.Printf("decline session %s: %v", s.ID, err)
		}
		return page{Heading: "Declined", Text: "You have not paid."}
	}
	finished, err := b.pay(r.Context(), s)
	if err != nil {
		log.Printf("pay session %s: %v", s.ID, err)
		return page{Heading: "Not paid", Text: "We cannot move money now. You have not paid."}
	}
	select {
	case p := <-finished:
		switch p.Step {
		case stepSettled:
			return page{Heading: "Paid", Text: "The shop knows."}
		case stepBack:
			return page{Heading: "Sent back", Text: "The shop could not take your payment. You have your money back."}
		}
	case <-time.After(patienceOfPayer):
	}
	return page{Heading: "We are telling the shop", Text: "Your money has moved. Do not pay again: the shop will know soon, or you get it back."}
}

// patienceOfPayer is how long a payer looks at a page that loads.
const patienceOfPayer = 8 * time.Second

func respond(w http.ResponseWriter, r *http.Request, s session, shown page, returnURL string) {
	if s.ID != "" {
		shown.Merchant, shown.Amount = s.Merchant.DisplayName, amount(s.AmountCents, s.Currency)
	}
	if returnURL != "" && s.ID != "" && !shown.CanPay {
		shown.ReturnURL = strings.Replace(returnURL, "{sessionId}", s.ID, 1)
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	if err := pageTemplate.Execute(w, shown); err != nil {
		log.Printf("%s: %v", r.URL.Path, err)
	}
}

// amount writes minor units, such as 1250 EUR, as 12.50 EUR. Most currencies have two digits; ask ISO 4217 for the others.
func amount(minor int64, currency string) string {
	digits := 2
	switch currency {
	case "CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF", "XPF":
		digits = 0
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		digits = 3
	}
	text := strconv.FormatInt(minor, 10)
	if digits > 0 {
		text = strings.Repeat("0", max(0, digits+1-len(text))) + text
		text = text[:len(text)-digits] + "." + text[len(text)-digits:]
	}
	return text + " " + currency
}
