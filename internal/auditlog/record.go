package auditlog

import (
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// About returns a line about the key of a record.
func About(record published.KeyRecord, change Change, by By) Line {
	return Line{
		Change: change, Origin: Origin{By: by}, Namespace: record.Source.Namespace, Name: record.Source.Name,
		MerchantID: record.MerchantID, KeyID: record.KeyID, Generation: record.Generation,
	}
}

// AboutSigning returns a line about the signing secret of a record.
func AboutSigning(record published.WebhookRecord, by By) Line {
	return Line{
		Change: SigningSecret, Origin: Origin{By: by}, Namespace: record.Source.Namespace, Name: record.Source.Name, MerchantID: record.MerchantID,
	}
}

// SigningWithdrawn returns the line about a webhook that has no signing secret any more.
func SigningWithdrawn(record published.WebhookRecord) Line {
	line := AboutSigning(record, Spec)
	line.To = "none"
	return line
}

// Rotation returns the line about the last rotation of a record; none: its key was never issued.
func Rotation(record published.KeyRecord) []Line {
	if !record.Issued() {
		return nil
	}
	last := record.LastRotation
	line := About(record, Rotated, rotatedBy(last))
	if last.Cause == v1alpha1.RotationInitial && record.Generation == 1 {
		line.Change = Issued
	}
	line.ChangedAt, line.Cause, line.Actor = last.Time, string(last.Cause), last.Actor
	return []Line{line}
}

func rotatedBy(last published.RotationEvent) By {
	switch last.Cause {
	case "": // of a newer version, of which only the envelope can be read
		return ""
	case v1alpha1.RotationSchedule:
		return Schedule
	case v1alpha1.RotationRecovery:
		return Service
	case v1alpha1.RotationAPI:
		if last.Actor != "" {
			return Person
		}
		return Key
	case v1alpha1.RotationInitial, v1alpha1.RotationTrigger:
	}
	return Spec
}

// Settings returns a line for each setting of a key that differs, and one if the record after is superseded now. The record after has the
// time of the change; a superseded one has that of a backup.
func Settings(before, after published.KeyRecord) []Line {
	var lines []Line
	if after.Superseded && !before.Superseded {
		lines = append(lines, About(after, Superseded, Service))
	}
	for _, setting := range []struct {
		change   Change
		from, to string
	}{
		{"", state(before), state(after)},
		{Expiry, expiry(before), expiry(after)},
		{Permissions, permissions(before), permissions(after)},
		{Allowlist, allowlist(before), allowlist(after)},
	} {
		if setting.from == setting.to {
			continue
		}
		line := About(after, setting.change, Spec)
		line.ChangedAt = time.UnixMilli(after.Revision)
		if setting.change == "" {
			line.Change = Change(setting.to)
		} else {
			line.To = setting.to
		}
		lines = append(lines, line)
	}
	return lines
}

func state(record published.KeyRecord) string {
	if record.Revoked || record.State != v1alpha1.ApiKeyActive {
		return string(Disabled)
	}
	return string(Enabled)
}

func expiry(record published.KeyRecord) string {
	if record.ExpiresAt == nil {
		return "never"
	}
	return record.ExpiresAt.UTC().Format(time.RFC3339)
}

func permissions(record published.KeyRecord) string {
	switch {
	case record.Permissions == nil:
		return "all"
	case len(record.Permissions) == 0:
		return "none"
	}
	return joined(record.Permissions)
}

func allowlist(record published.KeyRecord) string {
	if len(record.IPAllowlist) == 0 {
		return "any"
	}
	return joined(record.IPAllowlist)
}

func joined[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = string(value)
	}
	return strings.Join(texts, ",")
}
