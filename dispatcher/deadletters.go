package dispatcher

import (
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
	// MerchantID is with or without "mer_"; empty: all merchants.
	MerchantID string
	// Limit is the largest number; 0: no limit.
	Limit int
	// Output is OutputTable or OutputJSON; empty: a table.
	Output string
}

// ResendOptions select dead letters to send again, by exactly one of IDs, MerchantID and All.
type ResendOptions struct {
	// RedisURL has the forms of redis.Open.
	RedisURL string
	// IDs of events.
	IDs []string
	// MerchantID, with or without "mer_", selects those of one merchant.
	MerchantID string
	// All selects all.
	All bool
}

// ListDeadLetters writes dead letters, the newest first.
func ListDeadLetters(ctx context.Context, options ListOptions, to io.Writer) error {
	if options.Output != "" && options.Output != OutputTable && options.Output != OutputJSON {
		return fmt.Errorf("--output must be %s or %s, not %q", OutputTable, OutputJSON, options.Output)
	}
	if options.Limit < 0 {
		return errors.New("--limit must not be negative")
	}
	client, err := openRedis(options.RedisURL)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	letters, err := selectDeadLetters(ctx, outbox.New(client), options.MerchantID, options.Limit)
	if err != nil {
		return err
	}
	if options.Output == OutputJSON {
		return writeJSON(to, letters)
	}
	return writeTable(to, letters)
}

// ResendDeadLetters sends dead letters again, with the same ids and bytes and a new schedule, and writes how many. An id
// that is not a dead letter's is an error, after the others have been sent.
func ResendDeadLetters(ctx context.Context, options ResendOptions, to io.Writer) error {
	selectors := 0
	for _, given := range []bool{len(options.IDs) > 0, options.MerchantID != "", options.All} {
		if given {
			selectors++
		}
	}
	if selectors != 1 {
		return errors.New("select dead letters by event ids, by --merchant, or with --all")
	}
	client, err := openRedis(options.RedisURL)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ids := options.IDs
	if len(ids) == 0 {
		letters, err := selectDeadLetters(ctx, outbox.New(client), options.MerchantID, 0)
		if err != nil {
			return err
		}
		for _, letter := range letters {
			ids = append(ids, letter.Event.ID)
		}
	}
	sent, err := outbox.New(client).Resend(ctx, ids...)
	if _, writeErr := fmt.Fprintf(to, "%d dead letters queued for delivery\n", sent); writeErr != nil {
		return errors.Join(err, writeErr)
	}
	if err == nil && len(options.IDs) > sent {
		return fmt.Errorf("%d of %d ids are not dead letters", len(options.IDs)-sent, len(options.IDs))
	}
	return err
}

func openRedis(url string) (*redis.Client, error) {
	client, err := redis.Open(redis.Options{URL: url, Timeout: deadLetterTimeout})
	if err != nil {
		return nil, fmt.Errorf("open the connection to Redis: %w", err)
	}
	return client, nil
}

var merchantIDPattern = regexp.MustCompile(`^(mer_)?[a-z2-7]{12}$`)

func selectDeadLetters(ctx context.Context, events *outbox.Outbox, merchantID string, limit int) ([]outbox.DeadLetter, error) {
	if merchantID != "" && !merchantIDPattern.MatchString(merchantID) {
		return nil, fmt.Errorf("--merchant must be an id such as mer_abcdefgh2345, not %q", merchantID)
	}
	return events.DeadLetters(ctx, outbox.DeadLetterFilter{MerchantID: strings.TrimPrefix(merchantID, "mer_"), Limit: limit})
}

// listEntry is a dead letter without its content.
type listEntry struct {
	ID         string                `json:"id"`
	Kind       v1alpha1.WebhookEvent `json:"kind"`
	MerchantID string                `json:"merchantId"`
	SessionID  string                `json:"sessionId,omitempty"`
	KeyID      string                `json:"keyId,omitempty"`
	OccurredAt time.Time             `json:"occurredAt,omitzero"`
	FailedAt   time.Time             `json:"failedAt"`
	Attempts   int                   `json:"attempts"`
	Reason     string                `json:"reason"`
}

func listEntries(letters []outbox.DeadLetter) []listEntry {
	all := make([]listEntry, len(letters))
	for i, letter := range letters {
		event := letter.Event
		all[i] = listEntry{
			ID: event.ID, Kind: event.Kind, OccurredAt: event.OccurredAt,
			FailedAt: letter.FailedAt, Attempts: letter.Attempts, Reason: letter.Reason,
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
	fmt.Fprintln(table, "FAILED AT\tID\tKIND\tMERCHANT\tATTEMPTS\tREASON")
	for _, letter := range listEntries(letters) {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\n", letter.FailedAt.Format(time.RFC3339), letter.ID, letter.Kind,
			letter.MerchantID, letter.Attempts, letter.Reason)
	}
	return table.Flush()
}
