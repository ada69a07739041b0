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
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// deadLetterTimeout is of one script, of which there are many; the person who asks can wait.
const deadLetterTimeout = 5 * time.Second

// Forms of a list.
const (
	OutputTable = "table"
	OutputJSON  = "json"
)

// ListOptions select dead letters to list.
type ListOptions struct {
	// RedisURL has the forms of store.Open.
	RedisURL string
	// MerchantID is bare or as shown, with "mer_"; empty: all merchants.
	MerchantID string
	// Limit is the largest number; 0: no limit.
	Limit int
	// Output is OutputTable or OutputJSON; empty: a table.
	Output string
}

// ResendOptions select dead letters to send again, in one of three ways.
type ResendOptions struct {
	// RedisURL has the forms of store.Open.
	RedisURL string
	// IDs are of events.
	IDs []string
	// MerchantID, bare or as shown, selects those of one merchant.
	MerchantID string
	// All selects all.
	All bool
}

// ListDeadLetters writes dead letters, the newest first.
func ListDeadLetters(ctx context.Context, options ListOptions, to io.Writer) error {
	if options.Output != "" && options.Output != OutputTable && options.Output != OutputJSON {
		return fmt.Errorf("output %q: want %s or %s", options.Output, OutputTable, OutputJSON)
	}
	if options.Limit < 0 {
		return errors.New("the limit must not be negative")
	}
	redis, err := openForDeadLetters(options.RedisURL)
	if err != nil {
		return err
	}
	defer func() { _ = redis.Close() }()
	letters, err := selectDeadLetters(ctx, redis, options.MerchantID, options.Limit)
	if err != nil {
		return err
	}
	if options.Output == OutputJSON {
		return writeJSON(to, letters)
	}
	return writeTable(to, letters)
}

// ResendDeadLetters sends dead letters again, with the same ids and bytes and their schedule anew, and writes how many.
// The error says so when some of the ids are of no dead letter.
func ResendDeadLetters(ctx context.Context, options ResendOptions, to io.Writer) error {
	ways := 0
	for _, way := range []bool{len(options.IDs) > 0, options.MerchantID != "", options.All} {
		if way {
			ways++
		}
	}
	if ways != 1 {
		return errors.New("say which dead letters to send again: by id, all of a merchant, or all")
	}
	redis, err := openForDeadLetters(options.RedisURL)
	if err != nil {
		return err
	}
	defer func() { _ = redis.Close() }()
	ids := options.IDs
	if len(ids) == 0 {
		letters, err := selectDeadLetters(ctx, redis, options.MerchantID, 0)
		if err != nil {
			return err
		}
		for _, letter := range letters {
			ids = append(ids, letter.Event.ID)
		}
	}
	sent, err := redis.Resend(ctx, ids...)
	if _, writeErr := fmt.Fprintf(to, "%d dead letters are sent again\n", sent); writeErr != nil {
		return errors.Join(err, writeErr)
	}
	if err == nil && len(options.IDs) > sent {
		return fmt.Errorf("%d of %d ids are of no dead letter", len(options.IDs)-sent, len(options.IDs))
	}
	return err
}

func openForDeadLetters(url string) (*store.Store, error) {
	redis, err := store.Open(store.Options{URL: url, Timeout: deadLetterTimeout})
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return redis, nil
}

var merchantIDForm = regexp.MustCompile(`^(mer_)?[a-z2-7]{12}$`)

func selectDeadLetters(ctx context.Context, redis *store.Store, merchantID string, limit int) ([]store.DeadLetter, error) {
	if merchantID != "" && !merchantIDForm.MatchString(merchantID) {
		return nil, fmt.Errorf("merchant %q: want an id such as mer_abcdefgh2345", merchantID)
	}
	return redis.DeadLetters(ctx, store.DeadLetterFilter{MerchantID: strings.TrimPrefix(merchantID, "mer_"), Limit: limit})
}

// shownLetter is a dead letter as it is shown. It has nothing of what the event says beyond what it is about.
type shownLetter struct {
	ID         string                `json:"id"`
	Kind       v1alpha1.WebhookEvent `json:"kind"`
	MerchantID string                `json:"merchantId"`
	SessionID  string                `json:"sessionId,omitempty"`
	KeyID      string                `json:"keyId,omitempty"`
	OccurredAt time.Time             `json:"occurredAt,omitzero"`
	DiedAt     time.Time             `json:"diedAt"`
	Attempts   int                   `json:"attempts"`
	Reason     string                `json:"reason"`
}

func shown(letters []store.DeadLetter) []shownLetter {
	all := make([]shownLetter, len(letters))
	for i, letter := range letters {
		event := letter.Event
		all[i] = shownLetter{
			ID: event.ID, Kind: event.Kind, OccurredAt: event.OccurredAt,
			DiedAt: letter.DiedAt, Attempts: letter.Attempts, Reason: letter.Reason,
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

func writeJSON(to io.Writer, letters []store.DeadLetter) error {
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(shown(letters))
}

func writeTable(to io.Writer, letters []store.DeadLetter) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "DIED\tID\tKIND\tMERCHANT\tATTEMPTS\tREASON")
	for _, letter := range shown(letters) {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\n", letter.DiedAt.Format(time.RFC3339), letter.ID, letter.Kind,
			letter.MerchantID, letter.Attempts, letter.Reason)
	}
	return table.Flush()
}
