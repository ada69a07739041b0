package payments

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// eventsPath is where the API has the feed of a merchant.
const eventsPath = "/api/v1/events"

// ListenCommand returns kubectl merchant listen.
func ListenCommand(access *cluster.Access, streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	c := &commands{streams, access, now}
	var (
		source    apiFlags
		forwardTo string
		from      = fromFlag(fromOldest)
	)
	cmd := &cobra.Command{
		Use:   "listen [MERCHANT]",
		Short: "Follow the events of a merchant, and forward them as webhooks to this machine",
		Long: "Follow what happens to the payments of a merchant, whatever its webhook gets: a line for each event, until Ctrl-C. It needs no webhook\n" +
			"and no tunnel.\n\n" +
			"With --forward-to each event is posted as a webhook, with the same body and headers, signed with a secret that is printed at the start\n" +
			"and is of this command alone. Only addresses of this machine are allowed, so that no event goes to a stranger by a typing error; for others\n" +
			"use spec.webhook of the Merchant. What is not answered with 2xx is posted again until it is: at least once, in order.\n\n" +
			"Position and secret are kept in a file, one for each API, merchant, mode and address, in $XDG_STATE_HOME or ~/.local/state: the next\n" +
			"start goes on where this one ended. Events are kept for days (--history of the API); after a longer break a message says that some are lost.",
		Example: "  kubectl merchant listen acme-coffee -n shops\n" +
			"  kubectl merchant listen acme-coffee -n shops --mode Test --forward-to http://localhost:3000/hooks\n" +
			"  kubectl merchant listen --key-env --from now -o json",
		Args:              terminal.Arguments("[MERCHANT]"),
		ValidArgsFunction: c.access.CompleteMerchants,
	}
	source.add(cmd, c)
	source.addMode(cmd)
	cmd.Flags().StringVar(&forwardTo, "forward-to", "", "URL on this machine to which events are posted, such as http://localhost:3000/hooks; empty: none")
	cmd.Flags().Var(&from, "from", "first event, if there is no position yet. oldest: all that are kept; now: none that has happened")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{fromOldest, fromNow}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	out := terminal.AddOutput(cmd, terminal.FormatJSON)
	cmd.Flags().Lookup("output").Usage = "output format: json, an event a line; empty: text for people"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, err := parseForwardTo(forwardTo)
		if err != nil {
			return err
		}
		source.also = v1alpha1.PermissionList
		a, err := source.connect(cmd, c, args)
		if err != nil {
			return unlessInterrupted(cmd.Context(), err)
		}
		state, err := openListenState(a, forwardTo)
		if err != nil {
			return err
		}
		l := &listener{commands: c, api: a, state: state, json: out.Format == terminal.FormatJSON}
		if target != nil {
			l.forwarder = newForwarder(target, state.secret, c.now, a.notify)
		}
		err = unlessInterrupted(cmd.Context(), l.run(cmd.Context(), from))
		if err == nil {
			fmt.Fprintln(c.ErrOut, "Stopped. The next start goes on from here.")
		}
		return err
	}
	return cmd
}

// unlessInterrupted is nil after Ctrl-C, which is how listen ends.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// listener follows the feed.
type listener struct {
	commands  *commands
	api       *api
	state     *listenState
	forwarder *forwarder // nil: events are printed only
	json      bool
}

// feedItem is an event as the API answers it. Event is the body of a webhook, byte for byte.
type feedItem struct {
	ID     string          `json:"id"`
	Cursor string          `json:"cursor"`
	Event  json.RawMessage `json:"event"`
}

// feedPage is a read of the feed.
type feedPage struct {
	Items  []feedItem `json:"items"`
	Cursor string     `json:"cursor"`
}

// run follows the feed until the context ends, or until only a person can help.
func (l *listener) run(ctx context.Context, from fromFlag) error {
	mode := "live"
	if !l.api.livemode {
		mode = "test"
	}
	say := func(format string, args ...any) { fmt.Fprintf(l.commands.ErrOut, format+"\n", args...) }
	say("Listening to %s events of %s (%s). The position is in %s.", mode, terminal.Printable(l.api.merchant.Name), l.api.merchant.ID, l.state.path)
	if l.forwarder != nil {
		say("Forwarding to %s\nSigning secret: %s", l.forwarder.target, l.state.secret.Reveal())
	}
	switch {
	case l.state.Cursor != "":
		say("Going on after the last event of before.")
	case from == fromNow:
		say("Starting with events from now on.")
		if err := l.skip(ctx); err != nil {
			return err
		}
	default:
		say("Starting with the oldest event that is kept.")
	}
	for ctx.Err() == nil {
		page, err := l.read(ctx)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if err := l.handle(ctx, item); err != nil {
				return err
			}
		}
		if err := l.state.advance(page.Cursor); err != nil {
			return err
		}
	}
	return nil
}

const (
	// feedLimit is how many events are read at a time.
	feedLimit = 100
	// feedWait is for how long the API holds its answer until there is an event, in seconds.
	feedWait = 25
	// pollInterval is between two reads that the API does not hold.
	pollInterval = 5 * time.Second
	// rotationPatience is for how long a refused key is read again from its Secret.
	rotationPatience = time.Minute
	// forever is longer than a program runs.
	forever = 100 * 365 * 24 * time.Hour
)

// read returns the next events, after a wait if there is none. It continues as soon as the API responds again.
func (l *listener) read(ctx context.Context) (feedPage, error) {
	wait := feedWait
	for refusedSince := (time.Time{}); ; {
		var page feedPage
		query := url.Values{"limit": {strconv.Itoa(feedLimit)}, "wait": {strconv.Itoa(wait)}}
		if l.state.Cursor != "" {
			query.Set("after", l.state.Cursor)
		}
		_, err := l.api.get(ctx, eventsPath, query, forever, &page)
		refused, isRefused := errors.AsType[*apiError](err)
		switch {
		case err == nil && wait == 0 && len(page.Items) == 0:
			sleep(ctx, pollInterval)
			return page, nil
		case !isRefused: // or answered
			return page, err
		case refused.code == tooManyStreams && wait > 0:
			wait = 0
		case refused.status == http.StatusUnauthorized:
			if refusedSince.IsZero() {
				refusedSince = time.Now()
			}
			if l.api.readAgain == nil || time.Since(refusedSince) > rotationPatience || !sleep(ctx, time.Second) {
				return page, withAdvice(err)
			}
		default:
			if err := l.lost(refused); err != nil {
				return page, err
			}
		}
	}
}

// lost says which events nobody can read any more, and goes on with those that are left. Any other error ends the command.
func (l *listener) lost(refused *apiError) error {
	var reason string
	switch refused.status {
	case http.StatusGone:
		reason = "those between the last one here and the oldest that is kept are deleted by age."
	case http.StatusConflict:
		reason = "Redis lost its latest writes, sessions and events alike, so what was printed here last may not have happened for the API."
	default:
		return withAdvice(refused)
	}
	l.api.notify("EVENTS ARE LOST: " + reason + " Compare your orders with: kubectl merchant payments list --day")
	var answer struct {
		Cursor string `json:"cursor"`
	}
	_ = json.Unmarshal(refused.body, &answer) // without a cursor it starts with the oldest one
	if answer.Cursor == l.state.Cursor {
		answer.Cursor = ""
	}
	return l.state.advance(answer.Cursor)
}

// skip goes to the newest event.
func (l *listener) skip(ctx context.Context) error {
	for {
		var page feedPage
		query := url.Values{"limit": {strconv.Itoa(feedLimit)}}
		if l.state.Cursor != "" {
			query.Set("after", l.state.Cursor)
		}
		if _, err := l.api.get(ctx, eventsPath, query, patience, &page); err != nil {
			return withAdvice(err)
		}
		if err := l.state.advance(page.Cursor); err != nil || len(page.Items) == 0 {
			return err
		}
	}
}

// handle forwards and prints an event, and then remembers that: an interrupted one is handled again.
func (l *listener) handle(ctx context.Context, item feedItem) error {
	if l.forwarder != nil {
		if err := l.forwarder.deliver(ctx, item.ID, item.Event); err != nil {
			return err
		}
	}
	if err := l.print(item); err != nil {
		return err
	}
	return l.state.advance(item.Cursor)
}

func (l *listener) print(item feedItem) error {
	if l.json {
		lines := json.NewEncoder(l.commands.Out)
		lines.SetEscapeHTML(false)
		return lines.Encode(item)
	}
	_, err := fmt.Fprintln(l.commands.Out, describeEvent(item.Event, l.api.zone))
	return err
}

// describeEvent is a line about an event: when, what, how much, which order, which session.
func describeEvent(body []byte, zone *time.Location) string {
	var event struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      struct {
			SessionID   string `json:"sessionId"`
			OrderRef    string `json:"orderRef"`
			AmountCents int64  `json:"amountCents"`
			Currency    string `json:"currency"`
			KeyID       string `json:"keyId"`
			Payment     *struct {
				AmountCents int64 `json:"amountCents"`
			} `json:"payment"`
			Refund *struct {
				AmountCents int64 `json:"amountCents"`
			} `json:"refund"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return "an event that this version cannot read: " + err.Error()
	}
	data := event.Data
	words := []string{event.Timestamp.In(zone).Format(time.DateTime), fmt.Sprintf("%-24s", terminal.Printable(event.Type))}
	if data.SessionID != "" {
		amount := data.AmountCents
		switch {
		case data.Payment != nil:
			amount = data.Payment.AmountCents // what came in, and is to be refunded
		case data.Refund != nil:
			amount = data.Refund.AmountCents
		}
		words = append(words, strings.TrimSpace(session.FormatAmount(amount, data.Currency)+" "+terminal.Printable(data.Currency)))
		if data.OrderRef != "" {
			words = append(words, "order "+terminal.Printable(data.OrderRef))
		}
	}
	return strings.Join(append(words, terminal.Printable(cmp.Or(data.SessionID, data.KeyID))), "  ")
}

// Values of --from.
const (
	fromOldest = "oldest"
	fromNow    = "now"
)

// fromFlag is the flag --from.
type fromFlag string

// String returns the value of the flag.
func (f *fromFlag) String() string { return string(*f) }

// Type is the name of the value in --help.
func (*fromFlag) Type() string { return "oldest|now" }

// Set reads where to begin.
func (f *fromFlag) Set(text string) error {
	if text != fromOldest && text != fromNow {
		return fmt.Errorf("%q is not one of %s, %s", text, fromOldest, fromNow)
	}
	*f = fromFlag(text)
	return nil
}
