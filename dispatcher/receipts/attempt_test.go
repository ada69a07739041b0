package receipts

import (
	"net/mail"
	"net/textproto"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// The log has what the mail server says, and nothing that names the customer.
func TestNewAttempt_Reason(t *testing.T) {
	sender := &mail.Address{Address: "receipts@pay.example"}
	for _, test := range []struct{ name, to, says, want string }{
		{"nothing of the address", "ada@shop.example", "relay access denied", "relay access denied"},
		{"the address", "ada@shop.example", "<ada@shop.example>: Recipient address rejected", "<…>: Recipient address rejected"},
		{"in another case", "Ada@Shop.example", "ADA@shop.EXAMPLE unknown", "… unknown"},
		{"in a link", "ada@shop.example", "see https://mx.example/?to=ada%40shop.example&x=1 for help", "see … for help"},
		{"in a bounce address", "ada@shop.example", "from=<bounce+ada=shop.example@pay.example>", "from=<…>"},
		{"without its at sign", "ada@shop.example", "rcpt ada=shop.example, ada at shop.example", "rcpt …=…, … at …"},
		{"the user only", "ada@shop.example", "User ada unknown (ada, Ada)", "User … unknown (…, …)"},
		{"the account of a tagged user", "ada+till@shop.example", "550 ada: no such user", "550 …: no such user"},
		{"the domain only", "ada@shop.example", "Host or domain name not found: shop.example, mx.shop.example.", "Host or domain name not found: …, mx.…."},
		{"a short user", "a@shop.example", "a mailbox of that name is not available", "… mailbox of that name is not available"},
		{"an umlaut", "jörg@shop.example", "jörg, JÖRG and jörgen", "…, … and jörgen"},
		{"an international domain", "ada@müller.example", "xn--mller-kva.example has no MX", "… has no MX"},
		{"another address", "ada@shop.example", "forwarded to eve@home.example", "forwarded to …"},
		{"lines and control characters", "ada@shop.example", "one\ntwo\r\n\tthree", "one two three"},
	} {
		t.Run(test.name, func(t *testing.T) {
			message, ok := newMessage(sender, &session.Session{Charge: session.Charge{AmountCents: 1, CustomerEmail: test.to}})
			if !ok {
				t.Fatal("no message")
			}
			tried := newAttempt(stepRecipient, &textproto.Error{Code: 550, Msg: "5.7.1 " + test.says}, message)
			if want := "5.7.1 " + test.want; tried.reason != want || tried.code != 550 || tried.result != resultSenderRefused {
				t.Errorf("%+v, want the reason %q", tried, want)
			}
		})
	}
	message, _ := newMessage(sender, &session.Session{Charge: session.Charge{AmountCents: 1, CustomerEmail: "ada@shop.example"}})
	long := newAttempt(stepRecipient, &textproto.Error{Code: 550, Msg: strings.Repeat("ü", 1000)}, message).reason
	if len(long) > maxReason || !utf8.ValidString(long) {
		t.Errorf("a long sentence has %d bytes in the log: %q", len(long), long)
	}
}
