package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// writeText writes one screen about a merchant.
func (s merchantStatus) writeText(to io.Writer, now time.Time) error {
	table := newTable(to)
	row(table, "Merchant", fmt.Sprintf("%s/%s (%s), %s", s.Namespace, s.Name, s.DisplayName, cmp.Or(s.MerchantID, "no id yet")))
	row(table, "State", fmt.Sprintf("%s, %s", s.State, s.Ready))
	row(table, "Allowlist", s.allowlist())
	if s.Refused != nil {
		for _, block := range s.Refused.Refused {
			row(table, "Not on it", refused(block, s.Keys, now))
		}
	}
	row(table, "Webhook", s.Webhook.describe(now))
	if s.Webhook != nil {
		row(table, "Events", fmt.Sprintf("%d pending, %s", s.Webhook.Pending, plural(s.Webhook.Dead, "dead letter")))
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
		fmt.Fprintln(to, "  "+inline(next))
	}
	return nil
}

// String is "ready", or why not.
func (r readiness) String() string {
	if r.Status {
		return "ready"
	}
	return fmt.Sprintf("not ready: %s: %s", r.Reason, r.Message)
}

func (w *webhookStatus) describe(now time.Time) string {
	if w == nil {
		return none
	}
	text := w.URL + ", " + w.health()
	if w.LastDelivery != nil {
		text += ", last delivery " + ago(&w.LastDelivery.Time, now) + " ago"
	}
	if failure := w.LastFailure; failure != nil {
		text += ", last failure " + ago(&failure.Time, now) + " ago: " + failure.Reason
		if failure.StatusCode != 0 {
			text += " " + strconv.Itoa(int(failure.StatusCode))
		}
	}
	return text
}

func writeKeys(to io.Writer, keys []keyStatus, now time.Time) error {
	table := newTable(to)
	row(table, "KEY", "MODE", "PREFIX", "STATUS", "AGE", "LAST USE", "ENDS", "OLD KEYS END", "OLD KEY USED", "SECRET")
	for _, key := range keys {
		age, overlap, oldUse := none, none, none
		if key.Issued != nil {
			age = ago(&key.Issued.Time, now)
		}
		if len(key.Previous) > 0 {
			overlap, oldUse = until(&key.Previous[0].ValidUntil, now), key.oldKeyUse(now)
		}
		ends := until(key.ExpiresAt, now)
		if key.Rotates != nil && (key.ExpiresAt == nil || key.Rotates.Before(key.ExpiresAt)) {
			ends = until(key.Rotates, now) + " (rotation)"
		}
		row(table, key.Name, string(key.Mode), cmp.Or(key.Prefix, none), key.Ready.Reason, age, ago(key.LastUsed, now), ends, overlap, oldUse, cmp.Or(key.Secret, none))
	}
	return table.Flush()
}

// oldKeyUse is when an old key was last used, or that nobody knows.
func (k keyStatus) oldKeyUse(now time.Time) string {
	used := k.oldKeyUsed()
	switch {
	case used != nil:
		return ago(used, now)
	case k.OldKeyInUse == metav1.ConditionFalse:
		return none
	}
	return "unknown"
}

func (s merchantStatus) allowlist() string {
	if len(s.Allowlist) == 0 {
		return "any address"
	}
	list := strings.Join(names(s.Allowlist, func(block v1alpha1.IPBlock) string { return string(block) }), ",")
	if s.AllowlistMode == v1alpha1.IPAllowlistReport {
		list += " (report only)"
	}
	return list
}

// refused is a line about a block that is not on the allowlist of the merchant, or of a key.
func refused(block v1alpha1.RefusedBlock, keys []keyStatus, now time.Time) string {
	line := fmt.Sprintf("%s, %s, the last %s ago", block.Block, plural(block.Requests, "request"), ago(&block.LastSeen, now))
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

// health is a word about the endpoint.
func (w *webhookStatus) health() string {
	if w.Healthy == nil {
		return "no event yet"
	}
	return w.Healthy.Reason
}
