package receipts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/mail"
	"strings"
	"unicode"

	gomail "github.com/wneessen/go-mail"
	"golang.org/x/text/language"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/mailbox"
	"github.com/merchant-operator/merchant-operator/internal/money"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// amounts are in English, like the rest of the mail: nobody knows the customer's language.
var amounts = money.NewFormatter(language.English)

// newMessage writes the mail of a paid session. It is the same for each try, to the byte. false: the address
// is none.
func newMessage(from *mail.Address, paid *session.Session) (*gomail.Msg, bool) {
	message := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	message.FromMailAddress(from)
	if to, ok := mailbox.Recipient(paid.Charge.CustomerEmail); !ok || message.To(to) != nil { // its error quotes the address
		return nil, false
	}
	message.SetMessageIDWithValue(messageID(from, paid.ID))
	message.SetDateWithValue(paid.EndedAt.UTC())
	message.SetGenHeader("Auto-Submitted", "auto-generated") // no vacation notice answers it (RFC 3834)
	message.Subject("Receipt from " + oneLine(paid.MerchantName))
	message.SetBodyString(gomail.TypeTextPlain, newText(paid))
	return message, true
}

// messageID is that of all tries, by which the receiver may know a mail that it has already. It is a hash, because servers on the way log it.
func messageID(from *mail.Address, id session.ID) string {
	sum := sha256.Sum256([]byte(id.String()))
	return "receipt-" + hex.EncodeToString(sum[:16]) + from.Address[strings.LastIndex(from.Address, "@"):]
}

func newText(paid *session.Session) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n", oneLine(paid.MerchantName))
	line := func(name, value string) { fmt.Fprintf(&text, "%-11s%s\n", name+":", value) }
	line("Paid", amounts.Format(paid.Charge.AmountCents, paid.Currency))
	if tax := paid.Charge.TaxCents; tax != nil {
		line("Tax", amounts.Format(*tax, paid.Currency))
	}
	if tip := paid.Charge.TipCents; tip != nil {
		line("Tip", amounts.Format(*tip, paid.Currency))
	}
	line("Time", paid.EndedAt.In(v1alpha1.TimeZone(paid.TimeZone).Location()).Format("2006-01-02 15:04 MST"))
	if paid.Charge.OrderRef != "" {
		line("Order", oneLine(paid.Charge.OrderRef))
	}
	if paid.Charge.Description != "" {
		line("For", oneLine(paid.Charge.Description))
	}
	line("Reference", session.NewReference(paid.ID, paid.EndedAt).String())
	fmt.Fprintf(&text, "\nThis address was given for the receipt when the payment was made.\n")
	return text.String()
}

// oneLine keeps what a merchant wrote from looking like more than one line of the mail.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, text)
}
