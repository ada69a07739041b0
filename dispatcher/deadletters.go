package dispatcher

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

// deadLetterTimeout bounds each of many scripts; the person who runs the command can wait.
const deadLetterTimeout = 5 * time.Second

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
	_, err := filterOf(o.Merchant)
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

// filterOf reads --merchant.
func filterOf(merchant string) (outbox.DeadLetterFilter, error) {
	switch {
	case merchantNameForm.MatchString(merchant):
		return outbox.DeadLetterFilter{Merchant: merchant}, nil
	case merchant == "", merchantIDForm.MatchString(merchant):
		return outbox.DeadLetterFilter{MerchantID: strings.TrimPrefix(merchant, "mer_")}, nil
	}
	return outbox.DeadLetterFilter{}, fmt.Errorf("--merchant must be NAMESPACE/NAME, or an id such as mer_abcdefgh2345, not %q", merchant)
}

// ListDeadLetters writes dead letters, the newest first.
func ListDeadLetters(ctx context.Context, options ListOptions, to io.Writer) error {
	if err := options.Validate(); err != nil {
		return err
	}
	client, err := openRedis(options.RedisURL)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	letters, err := selectDeadLetters(ctx, outbox.New(client), options.Merchant, options.Limit)
	if err != nil {
		return err
	}
	if options.Output == OutputJSON {
		return writeJSON(to, letters)
	}
	return writeTable(to, letters)
}

// merchantLabel names a merchant for people.
func merchantLabel(merchant, merchantID string) string {
	switch {
	case merchant != "":
		return merchant
	case merchantID != "":
		return published.PublicMerchantID(merchantID)
	}
	return "-"
}

func openRedis(url string) (*redis.Client, error) {
	return redis.Open(redis.Options{URL: url, Timeout: deadLetterTimeout})
}

func selectDeadLetters(ctx context.Context, events *outbox.Outbox, merchant string, limit int) ([]outbox.DeadLetter, error) {
	filter, err := filterOf(merchant)
	if err != nil {
		return nil, err
	}
	filter.Limit = limit
	return events.DeadLetters(ctx, filter)
}

// listEntry is a dead letter without its content.
type listEntry struct {
	ID         string                `json:"id"`
	Kind       v1alpha1.WebhookEvent `json:"kind"`
	Merchant   string                `json:"merchant,omitempty"`
	MerchantID string                `json:"merchantId"`
	SessionID  string                `json:"sessionId,omitempty"`
	KeyID      string                `json:"keyId,omitempty"`
	OccurredAt time.Time             `json:"occurredAt,omitzero"`
	FailedAt   time.Time             `json:"failedAt"`
	Attempts   int                   `json:"attempts"`
	LastAnswer string                `json:"lastAnswer,omitempty"`
	Reason     string                `json:"reason"`
}

func listEntries(letters []outbox.DeadLetter) []listEntry {
	all := make([]listEntry, len(letters))
	for i, letter := range letters {
		event := letter.Event
		all[i] = listEntry{
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

func writeJSON(to io.Writer, letters []outbox.DeadLetter) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(listEntries(letters))
}

func writeTable(to io.Writer, letters []outbox.DeadLetter) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FAILED AT\tID\tKIND\tMERCHANT\tATTEMPTS\tLAST ANSWER\tREASON")
	for _, letter := range letters {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", letter.FailedAt.Format(time.RFC3339), letter.Event.ID, cmp.Or(letter.Event.Kind, "-"),
			merchantLabel(letter.Merchant, letter.Event.MerchantID), letter.Attempts, cmp.Or(letter.Answer, "-"), cmp.Or(letter.Reason, "-"))
	}
	return table.Flush()
}
