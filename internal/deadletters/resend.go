package deadletters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// ResendOptions select dead letters to send again, by exactly one of IDs, Merchant and All.
type ResendOptions struct {
	// RedisURL has the forms of redis.Open.
	RedisURL string
	// IDs of events.
	IDs []string
	// Merchant, as in ListOptions, selects those of one merchant.
	Merchant string
	// All selects all.
	All bool
	// Resume enables disabled endpoints of the selected dead letters, which else are not sent.
	Resume bool
}

// Validate says which option is wrong, by its flag.
func (o ResendOptions) Validate() error {
	selectors := 0
	for _, given := range []bool{len(o.IDs) > 0, o.Merchant != "", o.All} {
		if given {
			selectors++
		}
	}
	_, err := parseFilter(o.Merchant)
	switch {
	case o.RedisURL == "":
		return errNoRedis
	case selectors != 1:
		return errors.New("select dead letters by event ids, by --merchant, or with --all")
	}
	for _, id := range o.IDs {
		if !eventIDForm.MatchString(id) {
			return fmt.Errorf("%q is not the id of an event; ids begin with evt_ and are listed by: merchant-operator dead-letters list", id)
		}
	}
	return err
}

var eventIDForm = regexp.MustCompile(`^evt(_[0-9A-Za-z]+)+$`)

// Resend sends dead letters again, with the same ids and bytes and a new schedule, and writes how many. After that
// these are errors: an id that is not a dead letter's, and a disabled endpoint that was not to be resumed.
func Resend(ctx context.Context, options ResendOptions, to io.Writer) error {
	if err := options.Validate(); err != nil {
		return err
	}
	client, err := openRedis(options.RedisURL)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	events := outbox.New(client)
	ids := options.IDs
	if len(ids) == 0 {
		letters, err := selectLetters(ctx, events, options.Merchant, 0)
		if err != nil {
			return err
		}
		for _, letter := range letters {
			ids = append(ids, letter.Event.ID)
		}
	}
	resent, err := events.Resend(ctx, outbox.ResendRequest{IDs: ids, Resume: options.Resume})
	if _, writeErr := fmt.Fprintf(to, "dead letters queued for delivery: %d\n", resent.Sent); writeErr != nil {
		return errors.Join(err, writeErr)
	}
	if err != nil {
		return err
	}
	return notSent(options, resent)
}

// notSent says what was not sent, and why.
func notSent(options ResendOptions, resent outbox.Resent) error {
	var errs []error
	disabled := 0
	for _, endpoint := range resent.Disabled {
		disabled += endpoint.Events
		why := "it answered 410 Gone"
		if endpoint.Cause == outbox.EndpointFailing {
			why = "every attempt has failed since " + endpoint.FailingSince.Format(time.RFC3339) + ", the last answer is " + endpoint.LastFailure.Answer
		}
		errs = append(errs, fmt.Errorf("not sent: %d of %s, whose endpoint is disabled since %s: %s; when it is repaired, "+
			"change spec.webhook.resumeTrigger of the Merchant and try again, or add --resume",
			endpoint.Events, merchantLabel(endpoint.Merchant, endpoint.MerchantID), endpoint.DisabledAt.Format(time.RFC3339), why))
	}
	if unknown := len(options.IDs) - resent.Sent - disabled; unknown > 0 {
		errs = append(errs, fmt.Errorf("%d of %d ids are not dead letters; they are listed by: merchant-operator dead-letters list", unknown, len(options.IDs)))
	}
	return errors.Join(errs...)
}
