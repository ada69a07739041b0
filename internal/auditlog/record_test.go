package auditlog_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

var at = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func record(change func(*published.KeyRecord)) published.KeyRecord {
	r := published.KeyRecord{
		KeyID: "abcdefgh2345", MerchantID: "merchant2345", Source: published.Source{Namespace: "shops", Name: "till", UID: "u"},
		Generation: 2, Revision: at.UnixMilli(), Current: published.Current{Prefix: "mk_live_x"}, State: v1alpha1.ApiKeyActive,
		LastRotation: published.RotationEvent{Time: at, Cause: v1alpha1.RotationTrigger},
	}
	change(&r)
	return r
}

func same(*published.KeyRecord) {}

// What the record says of its last rotation: who made it and why.
func TestRotation(t *testing.T) {
	line := func(change auditlog.Change, by auditlog.By, cause, actor string, generation int64) []auditlog.Line {
		return []auditlog.Line{{
			Change: change, Cause: cause, Origin: auditlog.Origin{By: by, Actor: actor}, Namespace: "shops", Name: "till",
			MerchantID: "merchant2345", KeyID: "abcdefgh2345", Generation: generation, ChangedAt: at,
		}}
	}
	cause := func(cause v1alpha1.RotationCause, actor string, generation int64) func(*published.KeyRecord) {
		return func(r *published.KeyRecord) {
			r.LastRotation.Cause, r.LastRotation.Actor, r.Generation = cause, actor, generation
		}
	}
	for name, row := range map[string]struct {
		edit func(*published.KeyRecord)
		want []auditlog.Line
	}{
		"first key":                    {cause(v1alpha1.RotationInitial, "", 1), line("issued", "spec", "Initial", "", 1)},
		"first key of a new Merchant":  {cause(v1alpha1.RotationInitial, "", 3), line("rotated", "spec", "Initial", "", 3)},
		"trigger":                      {cause(v1alpha1.RotationTrigger, "", 2), line("rotated", "spec", "Trigger", "", 2)},
		"schedule":                     {cause(v1alpha1.RotationSchedule, "", 2), line("rotated", "schedule", "Schedule", "", 2)},
		"lost record":                  {cause(v1alpha1.RotationRecovery, "", 2), line("rotated", "service", "Recovery", "", 2)},
		"holder of the key":            {cause(v1alpha1.RotationAPI, "", 2), line("rotated", "key", "API", "", 2)},
		"person":                       {cause(v1alpha1.RotationAPI, "ada", 2), line("rotated", "person", "API", "ada", 2)},
		"placeholder, which is no key": {func(r *published.KeyRecord) { r.Current.Prefix = "" }, nil},
		"envelope of a newer version": {func(r *published.KeyRecord) { r.LastRotation = published.RotationEvent{} }, []auditlog.Line{{
			Change: "rotated", Namespace: "shops", Name: "till", MerchantID: "merchant2345", KeyID: "abcdefgh2345", Generation: 2,
		}}},
		"cause of a newer version": {cause("Other", "", 2), line("rotated", "spec", "Other", "", 2)},
		"externally generated, no prefix": {func(r *published.KeyRecord) {
			r.Current.Prefix, r.HandledDigest = "", new(r.Current.Digest)
		}, line("rotated", "spec", "Trigger", "", 2)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, auditlog.Rotation(record(row.edit))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Each setting that differs has a line with its new value, and nothing else has.
func TestSettings(t *testing.T) {
	type lines map[auditlog.Change]string
	disabled := func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled }
	revoked := func(r *published.KeyRecord) { r.Revoked = true }
	expires := func(r *published.KeyRecord) { r.ExpiresAt = new(at) }
	permitted := func(r *published.KeyRecord) { r.Permissions = []v1alpha1.Permission{"create", "read"} }
	nothing := func(r *published.KeyRecord) { r.Permissions = []v1alpha1.Permission{} }
	listed := func(r *published.KeyRecord) { r.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::1"} }
	for name, row := range map[string]struct {
		before, after func(*published.KeyRecord)
		want          lines
	}{
		"nothing":              {same, same, lines{}},
		"disabled":             {same, disabled, lines{"disabled": ""}},
		"enabled":              {disabled, same, lines{"enabled": ""}},
		"revoked by envelope":  {same, revoked, lines{"disabled": ""}},
		"taken back":           {revoked, same, lines{"enabled": ""}},
		"revoked and disabled": {revoked, disabled, lines{}},
		"expires":              {same, expires, lines{"expiry": "2026-11-23T12:00:00Z"}},
		"expires no more":      {expires, same, lines{"expiry": "never"}},
		"permissions":          {same, permitted, lines{"permissions": "create,read"}},
		"all permissions":      {permitted, same, lines{"permissions": "all"}},
		"no permission":        {permitted, nothing, lines{"permissions": "none"}},
		"allowlist":            {same, listed, lines{"allowlist": "203.0.113.0/24,2001:db8::1"}},
		"no allowlist":         {listed, same, lines{"allowlist": "any"}},
		"several at once": {expires, func(r *published.KeyRecord) { disabled(r); listed(r) },
			lines{"disabled": "", "expiry": "never", "allowlist": "203.0.113.0/24,2001:db8::1"}},
		"restored from a backup": {same, func(r *published.KeyRecord) { r.Superseded = true }, lines{"superseded": ""}},
		"replaced after that":    {func(r *published.KeyRecord) { r.Superseded = true }, same, lines{}},
		"a rotation alone":       {same, func(r *published.KeyRecord) { r.Generation, r.Revision = 3, r.Revision+1 }, lines{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := lines{}
			for _, line := range auditlog.Settings(record(row.before), record(row.after)) {
				got[line.Change] = line.To
				if line.Change == auditlog.Superseded {
					line.By, line.ChangedAt = auditlog.Spec, at
				}
				line.Change, line.To = "", ""
				want := auditlog.Line{
					Origin: auditlog.Origin{By: auditlog.Spec}, Namespace: "shops", Name: "till", MerchantID: "merchant2345",
					KeyID: "abcdefgh2345", Generation: 2, ChangedAt: line.ChangedAt,
				}
				if diff := cmp.Diff(want, line); diff != "" || !line.ChangedAt.Equal(at) {
					t.Errorf("at %s, want %s (-want +got):\n%s", line.ChangedAt, at, diff)
				}
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
