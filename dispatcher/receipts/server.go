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
	"sync/atomic"
	"unicode"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/merchant-operator/merchant-operator/internal/mailbox"
)

// ServerOptions say which mail server takes the receipts.
type ServerOptions struct {
	// URL is smtps://host:port, or smtp://host:port, which must offer STARTTLS unless it is a loopback address; empty: no receipts are sent.
	URL string
	// From is who sends them, "Name <address>" or an address.
	From string
	// Helo is the name that the mail server is greeted with (EHLO): a host name, or an IP address
	// in brackets; empty: the domain of From.
	Helo string
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
	case o.Helo != "":
		return errors.New("--smtp-helo needs --smtp-url")
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
	helo       string
	// implicit: TLS begins with the connection, else with STARTTLS. plain: it may stay without.
	implicit, plain    bool
	caFile             string
	username, password string
	dial               func(ctx context.Context, network, address string) (net.Conn, error)
	// mechanism names the SASL mechanism that signed in last; nil: none has yet.
	mechanism atomic.Pointer[string]
}

// heloForm is a host name, or an address literal of RFC 5321.
var heloForm = regexp.MustCompile(`^([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[[A-Za-z0-9.:]+\])$`)

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
	sender, domain, err := parseSender(o.From)
	if err != nil {
		return nil, err
	}
	// A pod's host name has no dot, for which many servers refuse the mail.
	helo := cmp.Or(o.Helo, domain)
	if !heloForm.MatchString(helo) {
		return nil, errors.New("--smtp-helo must be a host name, such as pay.example, or an IP address in brackets")
	}
	s := &server{
		host: location.Hostname(), from: sender, helo: helo, implicit: location.Scheme == "smtps", caFile: o.CAFile, username: o.Username, password: o.Password,
		dial: new(net.Dialer).DialContext,
	}
	s.port = cmp.Or(location.Port(), map[bool]string{true: "465", false: "587"}[s.implicit])
	s.plain = !s.implicit && isLoopback(s.host)
	_, err = s.tls()
	return s, err
}

// parseSender returns the address that receipts come from, and its domain, which is in ASCII in both.
func parseSender(from string) (sender *mail.Address, domain string, err error) {
	sender, err = mail.ParseAddress(from)
	if err != nil {
		return nil, "", errors.New("--smtp-from must be an address that receipts come from, such as receipts@pay.example")
	}
	at := strings.LastIndexByte(sender.Address, '@')
	domain, err = mailbox.ASCIIDomain(sender.Address[at+1:])
	if err != nil {
		return nil, "", errors.New("--smtp-from must have a domain that DNS allows")
	}
	sender.Address = sender.Address[:at+1] + domain
	return sender, domain, nil
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

// send makes one try, which ends with ctx.
func (s *server) send(ctx context.Context, message *gomail.Msg) attempt {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the connections
	connected, err := s.connect(ctx, message)
	last := stepConnect
	if err == nil {
		last, err = deliver(connected, message)
	}
	var reply *textproto.Error
	switch {
	case err == nil:
		_ = connected.Quit()
	case errors.As(err, &reply):
	case ctx.Err() != nil:
		err = ctx.Err() // says more than a closed connection
	}
	return newAttempt(last, err, message)
}

// deliver hands over the mail, and returns the last step. After an error the connection is only to
// be closed: another command would make the server take half a mail for a whole one.
func deliver(connected *smtp.Client, message *gomail.Msg) (step, error) {
	from, err := message.GetSender(false)
	if err != nil {
		return stepSender, err
	}
	if err := connected.Mail(from); err != nil {
		return stepSender, err
	}
	recipients, err := message.GetRecipients()
	if err != nil {
		return stepRecipient, err
	}
	for _, recipient := range recipients {
		if err := connected.Rcpt(recipient); err != nil {
			return stepRecipient, err
		}
	}
	content, err := connected.Data()
	if err != nil {
		return stepContent, err
	}
	if _, err := message.WriteTo(content); err != nil {
		return stepContent, err
	}
	return stepContent, content.Close()
}

// maxAnswers bounds, in bytes, what the mail server may say on one connection, its certificates
// included. The library keeps a whole answer in memory, however long it is, and with STARTTLS
// anybody on the way may give the first ones.
const maxAnswers = 64 << 10

// boundedConn is a connection that fails once so many bytes were read.
type boundedConn struct {
	net.Conn

	left int
}

var errLongAnswer = fmt.Errorf("the mail server has sent more than %d bytes", maxAnswers)

// Read reads what is left of the bound.
func (c *boundedConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errLongAnswer
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// client is of one try. Its connections end with ctx.
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
		gomail.WithTLSPolicy(policy), gomail.WithTLSConfig(encryption), gomail.WithTimeout(attemptTimeout), gomail.WithHELO(s.helo),
		gomail.WithDialContextFunc(func(dialing context.Context, network, _ string) (net.Conn, error) {
			dialed, err := s.dial(dialing, network, net.JoinHostPort(completeName(s.host), s.port))
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = dialed.Close() })
			bounded := &boundedConn{Conn: dialed, left: maxAnswers}
			if !s.implicit {
				return bounded, nil
			}
			secured := tls.Client(bounded, encryption)
			err = secured.HandshakeContext(dialing)
			return secured, err
		}),
	}
	if recipients, _ := message.GetRecipients(); !strings.ContainsFunc(s.from.Address+strings.Join(recipients, ""), isNotASCII) {
		// The library asks every server that offers it, which must then refuse to hand the mail to one that does not (RFC 6531, 3.1).
		options = append(options, gomail.WithoutSMTPUTF8())
	}
	return gomail.NewClient(s.host, options...)
}
