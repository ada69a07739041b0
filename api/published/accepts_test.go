package published_test

import (
	"slices"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestLive(t *testing.T) {
	end := issued.Add(24 * time.Hour) // of the previous key's overlap
	expiry := issued.AddDate(1, 0, 0)
	current, previous, unknown := apikey.DigestOf("current"), apikey.DigestOf("previous"), apikey.DigestOf("unknown")

	for _, tc := range []struct {
		desc   string
		mutate func(*published.KeyRecord)
		digest apikey.Digest
		now    time.Time
		want   bool
	}{
		{desc: "the current key", digest: current, now: issued, want: true},
		{desc: "an unknown key", digest: unknown, now: issued},
		{desc: "no key", digest: apikey.Digest{}, now: issued},
		{desc: "the previous key in its overlap", digest: previous, now: end.Add(-1), want: true},
		{desc: "the previous key at the end of its overlap", digest: previous, now: end},
		{desc: "the current key after the overlap", digest: current, now: end, want: true},
		{desc: "the current key just before its expiry", digest: current, now: expiry.Add(-1), want: true},
		{desc: "the current key at its expiry", digest: current, now: expiry},
		{
			desc: "a previous key whose overlap outlasts the expiry", digest: previous, now: expiry,
			mutate: func(r *published.KeyRecord) { r.Previous[0].ValidUntil = expiry.AddDate(1, 0, 0) },
		},
		{
			desc: "a key without expiry", digest: current, now: issued.AddDate(100, 0, 0), want: true,
			mutate: func(r *published.KeyRecord) { r.ExpiresAt = nil },
		},
		{
			desc: "the current key, expired at the beginning of time", digest: current, now: issued,
			mutate: func(r *published.KeyRecord) { r.ExpiresAt = new(time.Time{}) },
		},
		{
			desc: "the current key, expired in 1970", digest: current, now: issued,
			mutate: func(r *published.KeyRecord) { r.ExpiresAt = new(time.Unix(0, 0)) },
		},
		{
			desc: "a previous key, expired in 1960", digest: previous, now: issued,
			mutate: func(r *published.KeyRecord) { r.ExpiresAt = new(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)) },
		},
		{
			desc: "the current key of a disabled record", digest: current, now: issued,
			mutate: func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled },
		},
		{
			desc: "a previous key of a disabled record", digest: previous, now: issued,
			mutate: func(r *published.KeyRecord) { r.State = v1alpha1.ApiKeyDisabled },
		},
		{
			desc: "the current key of a superseded record", digest: current, now: issued,
			mutate: func(r *published.KeyRecord) { r.Superseded = true },
		},
		{
			desc: "a previous key of a superseded record", digest: previous, now: issued,
			mutate: func(r *published.KeyRecord) { r.Superseded = true },
		},
		{
			desc: "a record of unknown state", digest: current, now: issued,
			mutate: func(r *published.KeyRecord) { r.State = "" },
		},
	} {
		t.Run(tc.desc, func(t *testing.T) {
			record := keyRecord()
			if tc.mutate != nil {
				tc.mutate(&record)
			}
			if got := record.Live(tc.digest, tc.now); got != tc.want {
				t.Errorf("Live = %t, want %t", got, tc.want)
			}
			if accepts(record.Accepts(), tc.digest, tc.now) != tc.want {
				t.Errorf("Accepts disagrees with Live: %v", record.Accepts())
			}
			if tc.want && !record.Usable(tc.now) {
				t.Error("a record with a live key is not Usable")
			}
		})
	}
}

// accepts reads a list of accepted digests as an override's reader does.
func accepts(accepted []published.Accepted, digest apikey.Digest, now time.Time) bool {
	return slices.ContainsFunc(accepted, func(a published.Accepted) bool {
		return a.Digest.Equal(digest) && (a.Until.IsZero() || now.Before(a.Until))
	})
}

// What was accepted once and is over by a later look must be over for whoever kept the list as well.
func TestAcceptsHasTheEnds(t *testing.T) {
	record := keyRecord()
	list := record.Accepts()
	for _, now := range []time.Time{issued, issued.Add(24*time.Hour - 1), issued.Add(24 * time.Hour), issued.AddDate(1, 0, 0)} {
		for _, key := range []string{"current", "previous", "unknown"} {
			digest := apikey.DigestOf(key)
			if got, want := accepts(list, digest, now), record.Live(digest, now); got != want {
				t.Errorf("%s at %s: the list says %t, the record %t", key, now, got, want)
			}
		}
	}
}
