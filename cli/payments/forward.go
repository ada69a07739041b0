package payments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/webhook"
)

// forwarder posts events as the dispatcher posts webhooks, to this machine.
type forwarder struct {
	target *url.URL
	secret published.SigningSecret
	now    func() time.Time
	// notify says why it waits, once for each problem.
	notify func(message string)
	client *http.Client
}

// parseForwardTo reads --forward-to; nil: it is empty.
func parseForwardTo(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // nothing is forwarded
	}
	const hint = "Use a form like http://localhost:3000/hooks."
	target, err := url.Parse(text)
	if err != nil || target.Hostname() == "" || target.User != nil || target.Scheme != "http" && target.Scheme != "https" {
		return nil, terminal.Usage(hint, "--forward-to must be an http or https URL")
	}
	if !loopbackHost(target.Hostname()) {
		return nil, terminal.Usage(hint+" Another machine gets webhooks by spec.webhook of the Merchant.", "--forward-to must be an address of this machine, not %s", target.Hostname())
	}
	return target, nil
}

// errNotLoopback says that a name does not lead to this machine, whatever it promises.
var errNotLoopback = errors.New("it is not an address of this machine")

func newForwarder(target *url.URL, secret published.SigningSecret, now func() time.Time, notify func(string)) *forwarder {
	dialer := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() {
			return errNotLoopback
		}
		return nil
	}}
	return &forwarder{target: target, secret: secret, now: now, notify: notify, client: &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       answerTime, // as long as the dispatcher waits
	}}
}

// deliver posts an event until it is answered with 2xx. The error is the context's.
func (f *forwarder) deliver(ctx context.Context, id string, body []byte) error {
	reported := ""
	for pause := time.Second; ; pause = min(2*pause, maxPause) {
		problem := f.post(ctx, id, body)
		switch {
		case problem == nil && reported != "":
			f.notify("The receiver takes events again.")
			return nil
		case problem == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if text := problem.Error(); text != reported {
			f.notify(fmt.Sprintf("Waiting for %s, which has not taken %s: %s", f.target, id, text))
			reported = text
		}
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// post makes one attempt.
func (f *forwarder) post(ctx context.Context, id string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.target.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header = webhook.Header(id, f.now(), body, f.secret)
	response, err := f.client.Do(request)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return err
	}
	defer func() { _ = response.Body.Close() }()
	const enough = 4 << 10
	_, _ = io.CopyN(io.Discard, response.Body, enough) // so that the connection can be used again
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("it answers %d", response.StatusCode)
	}
	return nil
}
