package receipts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
)

// mechanism is a way to sign in (SASL).
type mechanism struct {
	name string
	// needsTLS: it sends the password itself, or is bound to the connection's TLS.
	needsTLS bool
	auth     func(s *server, state *tls.ConnectionState) smtp.Auth
}

// mechanisms are what we can, the strongest first.
var mechanisms = []mechanism{
	{"SCRAM-SHA-256-PLUS", true, func(s *server, state *tls.ConnectionState) smtp.Auth {
		return smtp.ScramSHA256PlusAuth(s.username, s.password, state)
	}},
	{"SCRAM-SHA-256", false, func(s *server, _ *tls.ConnectionState) smtp.Auth { return smtp.ScramSHA256Auth(s.username, s.password) }},
	{"SCRAM-SHA-1-PLUS", true, func(s *server, state *tls.ConnectionState) smtp.Auth {
		return smtp.ScramSHA1PlusAuth(s.username, s.password, state)
	}},
	{"SCRAM-SHA-1", false, func(s *server, _ *tls.ConnectionState) smtp.Auth { return smtp.ScramSHA1Auth(s.username, s.password) }},
	{"NTLM", false, func(s *server, _ *tls.ConnectionState) smtp.Auth { return smtp.NTLMAuth(s.username, s.password, "") }},
	{"CRAM-MD5", false, func(s *server, _ *tls.ConnectionState) smtp.Auth { return smtp.CRAMMD5Auth(s.username, s.password) }},
	{"PLAIN", true, func(s *server, _ *tls.ConnectionState) smtp.Auth {
		return smtp.PlainAuth("", s.username, s.password, s.host, false)
	}},
	{"LOGIN", true, func(s *server, _ *tls.ConnectionState) smtp.Auth {
		return smtp.LoginAuth(s.username, s.password, s.host, false)
	}},
}

// connect returns a connection on which the server knows who sends. Servers offer mechanisms that
// they do not have: saslauthd lists CRAM-MD5, and has no password to check it with. So a mechanism
// that is refused is followed by the next one, in a connection of its own. The one that worked is
// the first from then on, because servers block an address with many failures.
func (s *server) connect(ctx context.Context, message *gomail.Msg) (*smtp.Client, error) {
	client, err := s.client(ctx, message)
	if err != nil {
		return nil, err
	}
	connected, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil || s.username == "" {
		return connected, err
	}
	usable := s.usable(connected)
	if len(usable) == 0 {
		return nil, errors.New("the mail server offers no way to sign in, or none of ours over TLS")
	}
	for i, next := range usable {
		if i > 0 { // the refusal has ended the connection
			if connected, err = client.DialToSMTPClientWithContext(ctx); err != nil {
				return nil, err
			}
		}
		state, _ := connected.GetTLSConnectionState() // nil without TLS
		if err = connected.Auth(boundedAuth{next.auth(s, state)}); err == nil {
			s.mechanism.Store(&next.name)
			return connected, nil
		}
		var reply *textproto.Error
		if !errors.As(err, &reply) || reply.Code < permanent {
			break
		}
	}
	return nil, err
}

// maxIterations is how often a server may have us hash the password (SCRAM). Servers ask for
// thousands; two billion keep a processor busy for ten minutes, and nothing ends that.
const maxIterations = 1_000_000

var errIterations = fmt.Errorf("the mail server asks for more than %d iterations of SCRAM", maxIterations)

// boundedAuth is a way to sign in that does not let the server decide how much it costs.
type boundedAuth struct{ smtp.Auth }

// Next answers the server. It reads the server's first message of SCRAM (RFC 5802) as the library
// does: r=nonce,s=salt,i=iterations.
func (a boundedAuth) Next(challenge []byte, more bool) ([]byte, error) {
	if fields := strings.Split(string(challenge), ","); len(fields) > 2 && strings.HasPrefix(fields[0], "r=") {
		if asked, err := strconv.Atoi(strings.TrimPrefix(fields[2], "i=")); err == nil && asked > maxIterations {
			return nil, errIterations
		}
	}
	return a.Auth.Next(challenge, more)
}

// usable returns the mechanisms that the server offers on a connection and we can, in the order in which they are tried.
func (s *server) usable(connected *smtp.Client) []mechanism {
	_, list := connected.Extension("AUTH")
	offered := strings.Fields(strings.ToUpper(list))
	_, encrypted := connected.TLSConnectionState()
	usable := slices.DeleteFunc(slices.Clone(mechanisms), func(m mechanism) bool {
		return !slices.Contains(offered, m.name) || m.needsTLS && !encrypted
	})
	worked := s.mechanism.Load()
	if first := slices.IndexFunc(usable, func(m mechanism) bool { return worked != nil && m.name == *worked }); first > 0 {
		usable = slices.Concat(usable[first:first+1], usable[:first], usable[first+1:])
	}
	return usable
}
