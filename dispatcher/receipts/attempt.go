package receipts

import (
	"errors"
	"net/textproto"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"
)

// What became of a try. They label a metric.
const (
	// resultSent: the server has taken the mail.
	resultSent = "sent"
	// resultRefused: it refuses this mail permanently (SMTP 5xx that is about its recipient or content).
	resultRefused = "refused"
	// resultTemporary: it refuses for now (SMTP 4xx).
	resultTemporary = "temporary"
	// resultSenderRefused: it refuses us (any other SMTP 5xx). That is no reason to drop anybody's receipt.
	resultSenderRefused = "sender_refused"
	// resultUnavailable: there was no connection, no TLS or no answer.
	resultUnavailable = "unavailable"
)

func results() []string {
	return []string{resultSent, resultRefused, resultTemporary, resultSenderRefused, resultUnavailable}
}

// step is how far a try came.
type step int

const (
	stepConnect step = iota // connection, TLS and sign-in
	stepSender
	stepRecipient
	stepContent
)

// attempt is what became of a try.
type attempt struct {
	result string
	// code is the last one of SMTP; 0: there was none.
	code int
	// reason is the server's own sentence, or why there was none. It never quotes the recipient.
	reason string
}

// permanent is the least code of SMTP that is permanent.
const permanent = 500

// newAttempt returns what became of a try that ended with an error of a step; nil: the server has taken the mail.
func newAttempt(last step, err error, message *gomail.Msg) attempt {
	if err == nil {
		return attempt{result: resultSent}
	}
	var reply *textproto.Error
	if !errors.As(err, &reply) {
		return attempt{result: resultUnavailable, reason: withoutRecipients(err.Error(), message)}
	}
	tried := attempt{code: reply.Code, reason: withoutRecipients(reply.Msg, message)}
	switch {
	case reply.Code < permanent:
		tried.result = resultTemporary
	case last < stepRecipient || !aboutMail(last == stepRecipient, reply.Code, reply.Error()):
		tried.result = resultSenderRefused
	default:
		tried.result = resultRefused
	}
	return tried
}

var (
	// enhancedCode finds the enhanced status code of RFC 3463, after the code or in brackets as (#5.7.1). An IP address has one more number.
	enhancedCode = regexp.MustCompile(`[ "#]5\.(\d{1,3}\.\d{1,3})[^.\w]`)
	// refusesSender finds what a server without enhanced codes, such as Exim, says to a recipient
	// about us: who we are, what we may send, and how much.
	refusesSender = regexp.MustCompile(`(?i)relay|authenticat|authoriz|sender|from address|verif|limit|quota|exceed|paused|suspend|host|helo|policy|reputation|spam|rbl|black|block`)
)

// aboutMail reports whether a 5xx to recipient or content is about one of them. Servers also refuse
// the sender there: many look at it only when they know where the mail goes. In doubt it is not: a
// mail too many is tried in vain, not lost. So without an enhanced code only a recipient is
// refused: the content is ours, and a relay that is over its quota says so there.
func aboutMail(recipient bool, code int, text string) bool {
	if enhanced := enhancedCode.FindStringSubmatch(text); len(enhanced) == 2 && enhanced[1] != "0.0" {
		switch enhanced[1] {
		case "1.1", "1.2", "1.3", "1.4", "1.6", "1.10", // the recipient's address
			"2.1", "2.2", // the recipient's mailbox
			"4.1", "4.4": // the way to the recipient
			return true
		case "6.7", "6.8", "6.9": // the server has no SMTPUTF8, which letters before the at sign need
			return false
		}
		return strings.HasPrefix(enhanced[1], "6.") // content
	}
	switch code {
	case 501, 550, 551, 552, 553, 554, 556:
		return recipient && !refusesSender.MatchString(text)
	}
	return false
}

// maxReason bounds, in bytes, what the log has of a server's sentence.
const maxReason = 500

// anyAddress is what has the form of an e-mail address, also in a URL.
var anyAddress = regexp.MustCompile(`[^\s<>"'()\[\],;]*(@|%40)[^\s<>"'()\[\],;]*`)

// withoutRecipients returns what a mail server says, on one line and without what it quotes of the
// recipients: their addresses, and domain and local part on their own.
func withoutRecipients(text string, message *gomail.Msg) string {
	text = anyAddress.ReplaceAllString(strings.Join(strings.Fields(text), " "), "…")
	for _, recipient := range message.GetTo() {
		at := strings.LastIndexByte(recipient.Address, '@')
		local, domain := recipient.Address[:at], recipient.Address[at+1:]
		account, _, _ := strings.Cut(local, "+")
		for _, part := range []string{local, account, domain} {
			text = withoutWord(text, part)
		}
	}
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// withoutWord replaces a word, in any case, where it is not part of a longer one.
func withoutWord(text, word string) string {
	inWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	var rest strings.Builder
	end := 0
	for _, place := range regexp.MustCompile(`(?i)`+regexp.QuoteMeta(word)).FindAllStringIndex(text, -1) {
		before, _ := utf8.DecodeLastRuneInString(text[:place[0]])
		after, _ := utf8.DecodeRuneInString(text[place[1]:])
		if word == "" || inWord(before) || inWord(after) {
			continue
		}
		rest.WriteString(text[end:place[0]] + "…")
		end = place[1]
	}
	return rest.String() + text[end:]
}
