package merchants

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// writeText writes one screen about a merchant.
func (s merchantStatus) writeText(to io.Writer, now time.Time) error {
	table := terminal.NewTable(to)
	terminal.Row(table, "Merchant", fmt.Sprintf("%s/%s (%s), %s", s.Namespace, s.Name, s.DisplayName, cmp.Or(s.MerchantID, "no id yet")))
	terminal.Row(table, "State", fmt.Sprintf("%s, %s", s.State, s.Ready))
	terminal.Row(table, "Currency", string(s.Currency))
	terminal.Row(table, "Time zone", string(s.TimeZone))
	terminal.Row(table, "Allowlist", s.allowlist())
	if s.Refused != nil {
		for _, block := range s.Refused.Refused {
			terminal.Row(table, "Not on it", refused(block, s.Keys, now))
		}
	}
	terminal.Row(table, "Webhook", s.Webhook.describe(now))
	if s.Webhook != nil {
		terminal.Row(table, "Events", fmt.Sprintf("%d pending, %s", s.Webhook.Pending, terminal.Plural(s.Webhook.Dead, "dead letter")))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(to)
	if err := writeKeys(to, s.Keys, now); err != nil {
		return err
	}
	fmt.Fprintln(to, "\nNext:")
	if len(s.Next) == 0 {
		fmt.Fprintln(to, "  nothing to do")
	}
	for _, next := range s.Next {
		fmt.Fprintln(to, "  "+terminal.Inline(next))
	}
	return nil
}

// String is "ready", or why not.
func (r Readiness) String() string {
	if r.Status {
		return "ready"
	}
	return fmt.Sprintf("not ready: %s: %s", r.Reason, r.Message)
}

func (w *Webhook) describe(now time.Time) string {
	if w == nil {
		return terminal.None
	}
	text := w.URL + ", " + w.Health()
	if w.LastDelivery != nil {
		text += ", last delivery " + terminal.Ago(&w.LastDelivery.Time, now) + " ago"
	}
	if failure := w.LastFailure; failure != nil {
		text += ", last failure " + terminal.Ago(&failure.Time, now) + " ago: " + failure.Reason
		if failure.StatusCode != 0 {
			text += " " + strconv.Itoa(int(failure.StatusCode))
		}
	}
	return text
}

func writeKeys(to io.Writer, keys []keyStatus, now time.Time) error {
	table := terminal.NewTable(to)
	terminal.Row(table, "KEY", "MODE", "PREFIX", "STATUS", "AGE", "LAST USE", "ENDS", "OLD KEYS END", "OLD KEY USED", "SECRET")
	for _, key := range keys {
		age, overlap, oldUse := terminal.None, terminal.None, terminal.None
		if key.Issued != nil {
			age = terminal.Ago(&key.Issued.Time, now)
		}
		if len(key.Previous) > 0 {
			overlap, oldUse = terminal.Until(&key.Previous[0].ValidUntil, now), key.oldKeyUse(now)
		}
		ends := terminal.Until(key.ExpiresAt, now)
		if key.Rotates != nil && (key.ExpiresAt == nil || key.Rotates.Before(key.ExpiresAt)) {
			ends = terminal.Until(key.Rotates, now) + " (rotation)"
		}
		terminal.Row(table, key.Name, string(key.Mode), cmp.Or(key.Prefix, terminal.None), key.Ready.Reason, age, terminal.Ago(key.LastUsed, now), ends, overlap, oldUse, cmp.Or(key.Secret, terminal.None))
	}
	return table.Flush()
}

// oldKeyUse is when an old key was last used, or that nobody knows.
func (k keyStatus) oldKeyUse(now time.Time) string {
	used := k.oldKeyUsed()
	switch {
	case used != nil:
		return terminal.Ago(used, now)
	case k.OldKeyInUse == metav1.ConditionFalse:
		return terminal.None
	}
	return "unknown"
}

func (s merchantStatus) allowlist() string {
	if len(s.Allowlist) == 0 {
		return "any address"
	}
	list := terminal.Join(s.Allowlist, ",")
	if s.AllowlistMode == v1alpha1.IPAllowlistReport {
		list += " (report only)"
	}
	return list
}

// refused is a line about a block that is not on the allowlist of the merchant, or of a key.
func refused(block v1alpha1.RefusedBlock, keys []keyStatus, now time.Time) string {
	line := fmt.Sprintf("%s, %s, the last %s ago", block.Block, terminal.Plural(block.Requests, "request"), terminal.Ago(&block.LastSeen, now))
	if block.KeyID == "" {
		return line
	}
	name := block.KeyID
	for _, key := range keys {
		if key.KeyID == block.KeyID {
			name = key.Name
		}
	}
	return line + ", not on the own list of key " + name
}

// Health is a word about the endpoint.
func (w *Webhook) Health() string {
	if w.Healthy == nil {
		return "no event yet"
	}
	return w.Healthy.Reason
}
