package published

import (
	"slices"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// MaxPrevious is the maximum number of rotated keys in their overlap; the oldest are dropped.
const MaxPrevious = 8

// Live reports whether the digest is accepted at the time now: the key is Active and not expired, and the digest is
// the current one or a previous one in its overlap.
func (r KeyRecord) Live(digest apikey.Digest, now time.Time) bool {
	if !r.Usable(now) {
		return false
	}
	if r.Current.Digest.Equal(digest) {
		return true
	}
	return slices.ContainsFunc(r.Previous, func(p Previous) bool {
		return now.Before(p.ValidUntil) && p.Digest.Equal(digest)
	})
}

// Usable reports whether any key of the record is accepted at the time now.
func (r KeyRecord) Usable(now time.Time) bool {
	return !r.Superseded && r.State == v1alpha1.ApiKeyActive && (r.ExpiresAt == nil || now.Before(*r.ExpiresAt))
}

// Accepted is a digest with the end of its acceptance; zero: no end.
type Accepted struct {
	Digest apikey.Digest
	Until  time.Time
}

// Accepts returns every digest for which Live is true at the time now, with its end.
func (r KeyRecord) Accepts(now time.Time) []Accepted {
	if !r.Usable(now) {
		return nil
	}
	var end time.Time
	if r.ExpiresAt != nil {
		end = *r.ExpiresAt
	}
	accepted := []Accepted{{r.Current.Digest, end}}
	for _, p := range r.PreviousAt(now) {
		until := p.ValidUntil
		if !end.IsZero() && end.Before(until) {
			until = end
		}
		accepted = append(accepted, Accepted{p.Digest, until})
	}
	return accepted
}

// NextRevision returns the revision for a change of the record at the time now.
func (r KeyRecord) NextRevision(now time.Time) int64 {
	return max(r.Revision+1, now.UnixMilli())
}

// Rotated returns the record after a rotation: higher generation and revision, next as the current key. The former
// key stays valid for the overlap. A rotation can shorten the overlap of older keys and never extends it; without an
// overlap it ends them all. Creation times increase by at least a millisecond, whatever the clocks say, because
// replicas order versions by them.
func (r KeyRecord) Rotated(next Current, cause v1alpha1.RotationCause, overlap time.Duration, now time.Time) KeyRecord {
	out := r
	out.Previous = nil
	if overlap > 0 {
		end := now.Add(overlap).UTC()
		replaced := Previous{Digest: r.Current.Digest, Prefix: r.Current.Prefix, ValidUntil: end}
		out.Previous = append([]Previous{replaced}, r.PreviousAt(now)...)
		out.Previous = out.Previous[:min(len(out.Previous), MaxPrevious)]
		for i, p := range out.Previous {
			if end.Before(p.ValidUntil) {
				out.Previous[i].ValidUntil = end
			}
		}
	}
	out.Generation++
	out.Revision = r.NextRevision(now)
	if after := r.Current.CreatedAt.Add(time.Millisecond); next.CreatedAt.Before(after) {
		next.CreatedAt = after
	}
	out.Current = next
	out.Superseded = false
	out.LastRotation = RotationEvent{Time: next.CreatedAt, Cause: cause}
	return out
}

// PreviousAt returns the previous keys in their overlap at the time now.
func (r KeyRecord) PreviousAt(now time.Time) []Previous {
	var live []Previous
	for _, p := range r.Previous {
		if now.Before(p.ValidUntil) {
			live = append(live, p)
		}
	}
	return live
}
