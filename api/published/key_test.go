package published_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestAccepts(t *testing.T) {
	end := issued.Add(24 * time.Hour) // of the previous key's overlap
	expiry := issued.AddDate(1, 0, 0)
	current, previous, unknown := apikey.NewDigest("current"), apikey.NewDigest("previous"), apikey.NewDigest("unknown")

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
			if got := record.Accepts(tc.digest, tc.now); got != tc.want {
				t.Errorf("Accepts = %t, want %t", got, tc.want)
			}
			if accepts(record.Accepted(), tc.digest, tc.now) != tc.want {
				t.Errorf("Accepted disagrees with Accepts: %v", record.Accepted())
			}
			if tc.want && !record.Usable(tc.now) {
				t.Error("a record that accepts a key is not Usable")
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

// What was accepted once and is over by a later look must be over for a kept list as well.
func TestAccepted_Ends(t *testing.T) {
	record := keyRecord()
	list := record.Accepted()
	for _, now := range []time.Time{issued, issued.Add(24*time.Hour - 1), issued.Add(24 * time.Hour), issued.AddDate(1, 0, 0)} {
		for _, key := range []string{"current", "previous", "unknown"} {
			digest := apikey.NewDigest(key)
			if got, want := accepts(list, digest, now), record.Accepts(digest, now); got != want {
				t.Errorf("%s at %s: the list says %t, the record %t", key, now, got, want)
			}
		}
	}
}

func TestRotated(t *testing.T) {
	now := issued.Add(time.Hour)
	next := published.Current{Digest: apikey.NewDigest("next"), Prefix: "mk_live_abcdefgh2345_next", CreatedAt: now}
	current := apikey.NewDigest("current")
	previous := apikey.NewDigest("previous")
	prefix := keyRecord().Current.Prefix

	for _, tc := range []struct {
		desc         string
		cause        v1alpha1.RotationCause
		overlap      time.Duration
		now          time.Time
		wantPrevious []published.Previous
	}{
		{
			desc: "over HTTP all older keys are dead at once", cause: v1alpha1.RotationAPI, now: now,
		},
		{
			desc: "an overlap keeps the key that was in force, and shortens older overlaps, the newest first", cause: v1alpha1.RotationTrigger,
			overlap: time.Hour, now: now,
			wantPrevious: []published.Previous{
				{Digest: current, Prefix: prefix, ValidUntil: now.Add(time.Hour)},
				{Digest: previous, ValidUntil: now.Add(time.Hour)},
			},
		},
		{
			desc: "an overlap does not lengthen older ones", cause: v1alpha1.RotationSchedule,
			overlap: 48 * time.Hour, now: now,
			wantPrevious: []published.Previous{
				{Digest: current, Prefix: prefix, ValidUntil: now.Add(48 * time.Hour)},
				{Digest: previous, ValidUntil: issued.Add(24 * time.Hour)},
			},
		},
		{
			desc: "a previous key whose overlap has ended leaves", cause: v1alpha1.RotationSchedule,
			overlap: time.Hour, now: issued.Add(24 * time.Hour),
			wantPrevious: []published.Previous{{Digest: current, Prefix: prefix, ValidUntil: issued.Add(25 * time.Hour)}},
		},
		{
			desc: "an overlap of zero lets nobody in", cause: v1alpha1.RotationTrigger, now: now,
		},
		{
			desc: "a negative overlap lets nobody in", cause: v1alpha1.RotationTrigger, overlap: -time.Hour, now: now,
		},
	} {
		t.Run(tc.desc, func(t *testing.T) {
			want := keyRecord()
			want.Generation = 3
			want.Revision = tc.now.UnixMilli()
			want.Current = next
			want.Previous = tc.wantPrevious
			want.LastRotation = published.RotationEvent{Time: next.CreatedAt, Cause: tc.cause}

			before := keyRecord()
			if diff := cmp.Diff(want, before.Rotated(next, tc.cause, tc.overlap, tc.now)); diff != "" {
				t.Errorf("the rotated record (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(keyRecord(), before); diff != "" {
				t.Errorf("the record that was rotated changed:\n%s", diff)
			}
		})
	}
}

// Replicas order what they know of a key by when it was created, so a clock that is behind must not
// make a newer key look older.
func TestRotated_CreatedAtRises(t *testing.T) {
	for desc, tc := range map[string]struct{ next, want time.Time }{
		"a later time":            {issued.Add(time.Second), issued.Add(time.Second)},
		"a millisecond later":     {issued.Add(time.Millisecond), issued.Add(time.Millisecond)},
		"less than a millisecond": {issued.Add(time.Microsecond), issued.Add(time.Millisecond)},
		"the same time":           {issued, issued.Add(time.Millisecond)},
		"a clock that is behind":  {issued.Add(-time.Hour), issued.Add(time.Millisecond)},
	} {
		next := published.Current{Digest: apikey.NewDigest("next"), CreatedAt: tc.next}
		rotated := keyRecord().Rotated(next, v1alpha1.RotationAPI, 0, tc.next)
		if !rotated.Current.CreatedAt.Equal(tc.want) || !rotated.LastRotation.Time.Equal(tc.want) {
			t.Errorf("%s: created at %s, rotated at %s, want %s", desc, rotated.Current.CreatedAt, rotated.LastRotation.Time, tc.want)
		}
	}
}

func TestRotated_NotSuperseded(t *testing.T) {
	record := keyRecord()
	record.Superseded = true
	next := published.Current{Digest: apikey.NewDigest("next"), CreatedAt: issued.Add(time.Hour)}
	if rotated := record.Rotated(next, v1alpha1.RotationInitial, 0, next.CreatedAt); !rotated.Accepts(next.Digest, next.CreatedAt) {
		t.Error("the key that takes the place of a superseded one is not accepted")
	}
}

// The newest previous keys are kept.
func TestRotated_TooManyPrevious(t *testing.T) {
	record, now := keyRecord(), issued
	record.Previous = nil
	var digests []apikey.Digest
	for i := range published.MaxPrevious + 3 {
		digests = append([]apikey.Digest{record.Current.Digest}, digests...)
		now = now.Add(time.Second)
		next := published.Current{Digest: apikey.NewDigest(string(rune('a' + i))), CreatedAt: now}
		record = record.Rotated(next, v1alpha1.RotationTrigger, time.Hour, now)
	}
	var kept []apikey.Digest
	for _, p := range record.Previous {
		kept = append(kept, p.Digest)
	}
	if !slices.Equal(kept, digests[:published.MaxPrevious]) {
		t.Errorf("%d previous keys are kept, want the %d newest, newest first", len(kept), published.MaxPrevious)
	}
	if record.Accepts(digests[published.MaxPrevious], now) {
		t.Error("a key that was pushed out is still accepted")
	}
	if _, err := published.EncodeKey(credentials, record); err != nil {
		t.Errorf("a record with all its previous keys cannot be written: %v", err)
	}
}

func TestPreviousAt(t *testing.T) {
	early := published.Previous{Digest: apikey.NewDigest("early"), ValidUntil: issued.Add(time.Minute)}
	late := published.Previous{Digest: apikey.NewDigest("late"), ValidUntil: issued.Add(time.Hour)}
	record := keyRecord()
	record.Previous = []published.Previous{late, early}
	for _, tc := range []struct {
		desc string
		now  time.Time
		want []published.Previous
	}{
		{"both in their overlap", issued, []published.Previous{late, early}},
		{"a nanosecond before the first end", issued.Add(time.Minute - 1), []published.Previous{late, early}},
		{"at the first end", issued.Add(time.Minute), []published.Previous{late}},
		{"after both", issued.Add(2 * time.Hour), nil},
	} {
		if diff := cmp.Diff(tc.want, record.PreviousAt(tc.now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.desc, diff)
		}
	}
}

// Whatever the order of rotations, a rotation over HTTP leaves one live key: the one just issued.
func TestRotated_NoOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		record, now := keyRecord(), issued
		old := []apikey.Digest{record.Current.Digest, record.Previous[0].Digest}
		rotate := func(cause v1alpha1.RotationCause, overlap time.Duration) {
			now = now.Add(time.Duration(rapid.IntRange(0, 3600).Draw(t, "seconds")) * time.Second)
			key, err := apikey.New(record.KeyID)
			if err != nil {
				t.Fatal(err)
			}
			old = append(old, record.Current.Digest)
			next := published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: now}
			rotated := record.Rotated(next, cause, overlap, now)
			if rotated.Generation != record.Generation+1 {
				t.Fatalf("generation %d follows %d", rotated.Generation, record.Generation)
			}
			if rotated.Revision <= record.Revision {
				t.Fatalf("revision %d follows %d", rotated.Revision, record.Revision)
			}
			record = rotated
		}
		for range rapid.IntRange(0, 12).Draw(t, "rotations") {
			rotate(v1alpha1.RotationTrigger, time.Duration(rapid.IntRange(0, 86400).Draw(t, "overlap"))*time.Second)
		}
		rotate(v1alpha1.RotationAPI, 0)
		if !record.Accepts(record.Current.Digest, now) {
			t.Fatal("the new key is not accepted")
		}
		for _, digest := range old {
			if record.Accepts(digest, now) {
				t.Fatal("an older key is still accepted")
			}
		}
	})
}

func TestRevision_Rises(t *testing.T) {
	record := keyRecord()
	if got, want := record.NextRevision(issued.Add(time.Second)), issued.Add(time.Second).UnixMilli(); got != want {
		t.Errorf("a change a second later has revision %d, want %d", got, want)
	}
	for _, now := range []time.Time{issued, issued.Add(-time.Hour)} {
		if got, want := record.NextRevision(now), record.Revision+1; got != want {
			t.Errorf("a change at %s, by a clock that is behind, has revision %d, want %d", now, got, want)
		}
	}
}
