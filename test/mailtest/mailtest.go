// Package mailtest is a mail server: it speaks SMTP, keeps what it receives, and shows it over HTTP. `make run` has one, and tests.
package mailtest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// kept is how many mails a server keeps; the oldest are removed first.
const kept = 1000

// Options of a server. The zero value accepts every mail, without TLS.
type Options struct {
	// Address to listen on; empty: a free port of 127.0.0.1.
	Address string
	// TLS is offered by STARTTLS; nil: no TLS.
	TLS *tls.Config
	// Implicit: TLS begins with the connection.
	Implicit bool
	// Username and Password are required of who sends; empty: nobody signs in.
	Username, Password string
	// Offers are the mechanisms that the server lists; nil: PLAIN. Has are those that it really
	// has, of PLAIN and LOGIN; nil: PLAIN. The others get 535.
	Offers, Has []string
	// Sender and Recipient answer an address, Content a whole mail: with a *smtp.SMTPError; nil: all are accepted.
	Sender, Recipient func(address string) error
	Content           func(Message) error
}

// Message is one mail that was accepted.
type Message struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Subject string `json:"subject"`
	// Text is decoded, with line ends as \n.
	Text string `json:"text"`
	// ID is the Message-ID.
	ID         string    `json:"messageId"`
	ReceivedAt time.Time `json:"receivedAt"`

	// Header is as it came.
	Header mail.Header `json:"-"`
	// Recipients are those of the envelope.
	Recipients []string `json:"-"`
	// Encrypted: it came by TLS.
	Encrypted bool `json:"-"`
	// UTF8: its sender asked for SMTPUTF8.
	UTF8 bool `json:"-"`
	// Hello is the name that its sender gave in EHLO.
	Hello string `json:"-"`
}

// Server is a mail server that runs.
type Server struct {
	options  Options
	server   *smtp.Server
	listener net.Listener

	mu       sync.Mutex
	messages []Message
	tries    int
	signIns  []string
}

// Start starts a server. The caller closes it.
func Start(o Options) (*Server, error) {
	address := o.Address
	if address == "" {
		address = "127.0.0.1:0"
	}
	if o.Offers == nil {
		o.Offers = []string{sasl.Plain}
	}
	if o.Has == nil {
		o.Has = []string{sasl.Plain}
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &Server{options: o, listener: listener}
	s.server = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return s.newSession(c), nil }))
	s.server.Domain, s.server.MaxRecipients, s.server.MaxMessageBytes = "localhost", 10, 1<<20
	s.server.EnableSMTPUTF8 = true
	s.server.ErrorLog = log.New(io.Discard, "", 0)
	s.server.TLSConfig = o.TLS
	if o.Implicit {
		listener = tls.NewListener(listener, o.TLS)
	}
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

// Close ends the server and its connections.
func (s *Server) Close() error {
	return errors.Join(s.server.Close(), ignoreClosed(s.listener.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Address is host:port.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Messages are what it has received, the oldest first.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// Tries is how many mails were started, also those that were refused.
func (s *Server) Tries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries
}

// SignIns are the mechanisms with which somebody tried to sign in, the oldest first.
func (s *Server) SignIns() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.signIns)
}

func (s *Server) newSession(c *smtp.Conn) smtp.Session {
	one := &session{server: s, conn: c}
	if s.options.Username == "" {
		return one
	}
	return &authSession{session: one}
}

// session is one connection.
type session struct {
	server     *Server
	conn       *smtp.Conn
	from       string
	utf8       bool
	recipients []string
}

// Reset drops the mail that was started.
func (c *session) Reset() { c.from, c.utf8, c.recipients = "", false, nil }

// Logout does nothing.
func (*session) Logout() error { return nil }

// Mail begins a mail.
func (c *session) Mail(from string, options *smtp.MailOptions) error {
	c.server.mu.Lock()
	c.server.tries++
	c.server.mu.Unlock()
	c.from, c.utf8 = from, options.UTF8
	if check := c.server.options.Sender; check != nil {
		return check(from)
	}
	return nil
}

// Rcpt adds a recipient.
func (c *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if check := c.server.options.Recipient; check != nil {
		if err := check(to); err != nil {
			return err
		}
	}
	c.recipients = append(c.recipients, to)
	return nil
}

// Data receives the mail.
func (c *session) Data(r io.Reader) error {
	message, err := parse(r)
	if err != nil {
		return &smtp.SMTPError{Code: 554, Message: "malformed mail"}
	}
	_, message.Encrypted = c.conn.TLSConnectionState()
	message.Recipients, message.ReceivedAt, message.UTF8 = slices.Clone(c.recipients), time.Now(), c.utf8
	message.Hello = c.conn.Hostname()
	if check := c.server.options.Content; check != nil {
		if err := check(message); err != nil {
			return err
		}
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if len(c.server.messages) == kept {
		c.server.messages = slices.Delete(c.server.messages, 0, 1)
	}
	c.server.messages = append(c.server.messages, message)
	return nil
}

func parse(r io.Reader) (Message, error) {
	read, err := mail.ReadMessage(r)
	if err != nil {
		return Message{}, err
	}
	body := read.Body
	if strings.EqualFold(read.Header.Get("Content-Transfer-Encoding"), "quoted-printable") {
		body = quotedprintable.NewReader(body)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return Message{}, err
	}
	words := new(mime.WordDecoder)
	subject, err := words.DecodeHeader(read.Header.Get("Subject"))
	if err != nil {
		return Message{}, err
	}
	return Message{
		From: read.Header.Get("From"), To: strings.Trim(read.Header.Get("To"), "<>"), Subject: subject,
		Text: strings.ReplaceAll(string(text), "\r\n", "\n"), ID: read.Header.Get("Message-Id"), Header: read.Header,
	}, nil
}

// authSession is a session that requires a user and a password.
type authSession struct {
	*session

	signedIn bool
}

// AuthMechanisms lists what the server offers.
func (c *authSession) AuthMechanisms() []string { return c.server.options.Offers }

// Auth begins to sign in.
func (c *authSession) Auth(mechanism string) (sasl.Server, error) {
	c.server.mu.Lock()
	c.server.signIns = append(c.server.signIns, mechanism)
	c.server.mu.Unlock()
	if !slices.Contains(c.server.options.Has, mechanism) {
		return nil, smtp.ErrAuthFailed
	}
	signIn := func(username, password string) error {
		if username != c.server.options.Username || password != c.server.options.Password {
			return smtp.ErrAuthFailed
		}
		c.signedIn = true
		return nil
	}
	if mechanism == sasl.Login {
		return &loginServer{signIn: signIn}, nil
	}
	return sasl.NewPlainServer(func(_, username, password string) error { return signIn(username, password) }), nil
}

// loginServer is the server's side of LOGIN: it asks for a user, then for a password.
type loginServer struct {
	signIn   func(username, password string) error
	asked    bool
	username string
}

// Next takes a response of the client.
func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	switch {
	case !l.asked:
		l.asked = true
		return []byte("Username:"), false, nil
	case l.username == "":
		l.username = string(response)
		return []byte("Password:"), false, nil
	default:
		return nil, true, l.signIn(l.username, string(response))
	}
}

// Mail begins a mail.
func (c *authSession) Mail(from string, options *smtp.MailOptions) error {
	if !c.signedIn {
		return smtp.ErrAuthRequired
	}
	return c.session.Mail(from, options)
}
