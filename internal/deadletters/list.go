// Package deadletters lists webhook events that could not be delivered, and sends them again, for commands.
package deadletters

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// timeout bounds each of many scripts; the person who runs the command can wait.
const timeout = 5 * time.Second

// Output formats.
const (
	OutputTable = "table"
	OutputJSON  = "json"
)

// ListOptions select dead letters to list.
type ListOptions struct {
	// RedisURL has the forms of redis.Open.
	RedisURL string
	// Merchant is "namespace/name", or an id with or without "mer_"; empty: all merchants.
	Merchant string
	// Limit is the largest number; 0: no limit.
	Limit int
	// Output is OutputTable or OutputJSON.
	Output string
}

// Validate says which option is wrong, by its flag.
func (o ListOptions) Validate() error {
	_, err := parseFilter(o.Merchant)
	switch {
	case o.RedisURL == "":
		return errNoRedis
	case o.Output != OutputTable && o.Output != OutputJSON:
		return fmt.Errorf("--output must be %s or %s, not %q", OutputTable, OutputJSON, o.Output)
	case o.Limit < 0:
		return fmt.Errorf("--limit must be at least 1, or 0 for all, not %d", o.Limit)
	}
	return err
}

var errNoRedis = errors.New("set --redis-url or REDIS_URL")

var (
	merchantIDForm   = regexp.MustCompile(`^(mer_)?[a-z2-7]{12}$`)
	merchantNameForm = regexp.MustCompile(`^[a-z0-9][-a-z0-9]*/[a-z0-9][-.a-z0-9]*$`)
)

// parseFilter parses --merchant.
func parseFilter(merchant string) (outbox.DeadLetterFilter, error) {
	switch {
	case merchantNameForm.MatchString(merchant):
		return outbox.DeadLetterFilter{Merchant: merchant}, nil
	case merchant == "", merchantIDForm.MatchString(merchant):
		return outbox.DeadLetterFilter{MerchantID: strings.TrimPrefix(merchant, "mer_")}, nil
	}
	return outbox.DeadLetterFilter{}, fmt.Errorf("--merchant must be NAMESPACE/NAME, or an id such as mer_abcdefgh2345, not %q", merchant)
}

// List writes dead letters, the newest first.
func List(ctx context.Context, options ListOptions, to io.Writer) error {
	entries, err := Read(ctx, options)
	if err != nil {
		return err
	}
	if options.Output == OutputJSON {
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(entries)
	}
	return WriteTable(to, entries)
}

// Entry is a dead letter without its content.
type Entry struct {
	ID   string                `json:"id"`
	Kind v1alpha1.WebhookEvent `json:"kind"`
	// Merchant is "namespace/name"; empty: not known.
	Merchant   string    `json:"merchant,omitempty"`
	MerchantID string    `json:"merchantId"`
	SessionID  string    `json:"sessionId,omitempty"`
	KeyID      string    `json:"keyId,omitempty"`
	OccurredAt time.Time `json:"occurredAt,omitzero"`
	FailedAt   time.Time `json:"failedAt"`
	Attempts   int       `json:"attempts"`
	LastAnswer string    `json:"lastAnswer,omitempty"`
	Reason     string    `json:"reason"`
}

// Read returns dead letters, the newest first.
func Read(ctx context.Context, options ListOptions) ([]Entry, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	client, err := openRedis(options.RedisURL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	letters, err := selectLetters(ctx, outbox.New(client), options.Merchant, options.Limit)
	if err != nil {
		return nil, err
	}
	return newEntries(letters), nil
}

// merchantLabel names a merchant for people.
func merchantLabel(merchant, merchantID string) string {
	if merchant == "" && merchantID != "" {
		return published.PublicMerchantID(merchantID)
	}
	return cmp.Or(merchant, "-")
}

func openRedis(url string) (*redis.Client, error) {
	return redis.Open(redis.Options{URL: url, Timeout: timeout})
}

func selectLetters(ctx context.Context, events *outbox.Outbox, merchant string, limit int) ([]outbox.DeadLetter, error) {
	filter, err := parseFilter(merchant)
	if err != nil {
		return nil, err
	}
	filter.Limit = limit
	return events.DeadLetters(ctx, filter)
}

func newEntries(letters []outbox.DeadLetter) []Entry {
	all := make([]Entry, len(letters))
	for i, letter := range letters {
		event := letter.Event
		all[i] = Entry{
			ID: event.ID, Kind: event.Kind, Merchant: letter.Merchant, OccurredAt: event.OccurredAt,
			FailedAt: letter.FailedAt, Attempts: letter.Attempts, LastAnswer: letter.Answer, Reason: letter.Reason,
		}
		if event.MerchantID != "" {
			all[i].MerchantID = published.PublicMerchantID(event.MerchantID)
		}
		if event.Session != nil {
			all[i].SessionID = event.Session.ID.String()
		}
		if event.Key != nil {
			all[i].KeyID = event.Key.KeyID
		}
	}
	return all
}

// WriteTable writes dead letters for people.
func WriteTable(to io.Writer, entries []Entry) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FAILED AT\tID\tKIND\tMERCHANT\tATTEMPTS\tLAST ANSWER\tREASON")
	for _, e := range entries {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", e.FailedAt.Format(time.RFC3339), e.ID, cmp.Or(e.Kind, "-"),
			cmp.Or(e.Merchant, e.MerchantID, "-"), e.Attempts, cmp.Or(e.LastAnswer, "-"), cmp.Or(e.Reason, "-"))
	}
	return table.Flush()
}
