package receipts

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/netip"
	"net/textproto"
	"net/url"
	"os"
	"regexp"
	"strings"
	"unicode"

	gomail "github.com/wneessen/go-mail"
)

// ServerOptions say which mail server takes the receipts.
type ServerOptions struct {
	// URL is smtps://host:port, or smtp://host:port, which must offer STARTTLS unless it is a loopback address; empty: no receipts are sent.
	URL string
	// From is who sends them, "Name <address>" or an address.
	From string
	// CAFile has the certificate authority of the server; empty: those of the system.
	CAFile string
	// Username and Password sign in; empty: nobody does. They are never logged.
	Username, Password string
}

// Enabled reports whether receipts are sent.
func (o ServerOptions) Enabled() bool { return o.URL != "" }

// Validate names the flag of an invalid option.
func (o ServerOptions) Validate() error {
	switch {
	case o.Enabled():
	case o.From != "":
		return errors.New("--smtp-from needs --smtp-url")
	case o.CAFile != "":
		return errors.New("--smtp-ca-file needs --smtp-url")
	default:
		return nil
	}
	_, err := newServer(o)
	return err
}

// server is the mail server.
type server struct {
	host, port string
	from       *mail.Address
	// implicit: TLS begins with the connection, else with STARTTLS. plain: it may stay without.
	implicit, plain    bool
	caFile             string
	username, password string
	dial               func(ctx context.Context, network, address string) (net.Conn, error)
}

func newServer(o ServerOptions) (*server, error) {
	const form = "--smtp-url must be smtps://host:port, or smtp://host:port for STARTTLS"
	location, err := url.Parse(o.URL)
	switch {
	case err != nil || location.Hostname() == "" || location.Path != "" || location.RawQuery != "" || location.Fragment != "":
		return nil, errors.New(form) // the URL may have a password
	case location.User != nil:
		return nil, errors.New("--smtp-url must not have a user; set SMTP_USERNAME and SMTP_PASSWORD")
	case location.Scheme != "smtp" && location.Scheme != "smtps":
		return nil, errors.New(form)
	case (o.Username == "") != (o.Password == ""):
		return nil, errors.New("set both SMTP_USERNAME and SMTP_PASSWORD, or none")
	}
	sender, err := mail.ParseAddress(o.From)
	if err != nil {
		return nil, errors.New("--smtp-from must be an address that receipts come from, such as receipts@pay.example")
	}
	s := &server{
		host: location.Hostname(), from: sender, implicit: location.Scheme == "smtps", caFile: o.CAFile, username: o.Username, password: o.Password,
		dial: new(net.Dialer).DialContext,
	}
	s.port = cmp.Or(location.Port(), map[bool]string{true: "465", false: "587"}[s.implicit])
	s.plain = !s.implicit && isLoopback(s.host)
	_, err = s.tls()
	return s, err
}

// tls reads the certificate authority for each connection, so that a renewed one is used at once.
func (s *server) tls() (*tls.Config, error) {
	config := &tls.Config{ServerName: s.host, MinVersion: tls.VersionTLS12}
	if s.caFile == "" {
		return config, nil
	}
	authority, err := os.ReadFile(s.caFile)
	if err != nil {
		return nil, fmt.Errorf("--smtp-ca-file: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		return nil, errors.New("--smtp-ca-file has no certificate")
	}
	return config, nil
}

func isNotASCII(r rune) bool { return r > unicode.MaxASCII }

// completeName returns a host for the resolver. A name with a dot is complete, as those of webhooks: with a pod's search list mail.example would be
// Service mail of the namespace example, if the name is not there for a moment.
func completeName(host string) string {
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") || strings.HasSuffix(host, ".") {
		return host
	}
	return host + "."
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

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

// attempt is what became of a try.
type attempt struct {
	result string
	// code is the last one of SMTP; 0: there was none.
	code int
	// err says why there is no connection. It never quotes the recipient, whom the server does not know by then.
	err error
}

// permanent is the least code of SMTP that is permanent.
const permanent = 500

// send makes one try, which ends with ctx. Errors of the library quote the recipient, so they stay here.
func (s *server) send(ctx context.Context, message *gomail.Msg) attempt {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connection, which the library leaves open if the sign-in fails
	connection := func(ctx context.Context, err error) attempt {
		var answer *textproto.Error
		switch {
		case !errors.As(err, &answer):
			return attempt{result: resultUnavailable, err: cmp.Or(ctx.Err(), err)}
		case answer.Code >= permanent:
			return attempt{result: resultSenderRefused, code: answer.Code}
		default:
			return attempt{result: resultTemporary, code: answer.Code}
		}
	}
	client, err := s.client(ctx, message)
	if err != nil {
		return connection(ctx, err)
	}
	connected, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return connection(ctx, err)
	}
	err = client.SendWithSMTPClient(connected, message)
	if err == nil || message.IsDelivered() {
		_ = connected.Quit()
		return attempt{result: resultSent}
	}
	var refused *gomail.SendError
	switch {
	case !errors.As(err, &refused) || refused.ErrorCode() == 0:
		return attempt{result: resultUnavailable}
	case refused.ErrorCode() < permanent:
		return attempt{result: resultTemporary, code: refused.ErrorCode()}
	case refused.Reason == gomail.ErrSMTPMailFrom || !aboutMail(refused.Reason == gomail.ErrSMTPRcptTo, refused.ErrorCode(), refused.Error()):
		return attempt{result: resultSenderRefused, code: refused.ErrorCode()}
	}
	return attempt{result: resultRefused, code: refused.ErrorCode()}
}

var (
	// enhancedCode is that of RFC 3463, after the code or in brackets as (#5.7.1). An IP address has one more number.
	enhancedCode = regexp.MustCompile(`[ "#]5\.(\d{1,3}\.\d{1,3})[^.\w]`)
	// refusesSender finds what a server without enhanced codes, such as Exim, says to a recipient about us: who we are, what we may send, and how much.
	refusesSender = regexp.MustCompile(`(?i)relay|authenticat|authoriz|sender|from address|verif|limit|quota|exceed|paused|suspend|host|helo|policy|reputation|spam|rbl|black|block`)
)

// aboutMail reports whether a 5xx to recipient or content is about one of them. Servers also refuse the sender there: many look at
// it only when they know where the mail goes. In doubt it is not: a mail too many is tried in vain, not lost. So without an enhanced code only a
// recipient is refused: the content is ours, and a relay that is over its quota says so there.
func aboutMail(recipient bool, code int, text string) bool {
	if enhanced := enhancedCode.FindStringSubmatch(text); len(enhanced) == 2 && enhanced[1] != "0.0" {
		switch enhanced[1] {
		case "1.1", "1.2", "1.3", "1.4", "1.6", "1.10", // the recipient's address
			"2.1", "2.2", // the recipient's mailbox
			"4.1", "4.4": // the way to the recipient
			return true
		}
		return strings.HasPrefix(enhanced[1], "6.") // content
	}
	switch code {
	case 501, 550, 551, 552, 553, 554, 556:
		return recipient && !refusesSender.MatchString(text)
	}
	return false
}

// client is of one try. Its connection ends with ctx.
func (s *server) client(ctx context.Context, message *gomail.Msg) (*gomail.Client, error) {
	encryption, err := s.tls()
	if err != nil {
		return nil, err
	}
	policy := gomail.TLSMandatory
	if s.implicit || s.plain {
		policy = gomail.TLSOpportunistic // with TLS from the beginning, no server offers it once more
	}
	options := []gomail.Option{
		gomail.WithTLSPolicy(policy), gomail.WithTLSConfig(encryption), gomail.WithTimeout(attemptTimeout), gomail.WithoutNoop(), gomail.WithoutRset(),
		gomail.WithDialContextFunc(func(dialing context.Context, network, _ string) (net.Conn, error) {
			dialed, err := s.dial(dialing, network, net.JoinHostPort(completeName(s.host), s.port))
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = dialed.Close() })
			if !s.implicit {
				return dialed, nil
			}
			secured := tls.Client(dialed, encryption)
			err = secured.HandshakeContext(dialing)
			return secured, err
		}),
	}
	if recipients, _ := message.GetRecipients(); !strings.ContainsFunc(s.from.Address+strings.Join(recipients, ""), isNotASCII) {
		// The library asks every server that offers it, which must then refuse to hand the mail to one that does not (RFC 6531, 3.1).
		options = append(options, gomail.WithoutSMTPUTF8())
	}
	if s.username != "" {
		options = append(options, gomail.WithSMTPAuth(gomail.SMTPAuthAutoDiscover), gomail.WithUsername(s.username), gomail.WithPassword(s.password))
	}
	return gomail.NewClient(s.host, options...)
}
