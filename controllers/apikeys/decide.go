package apikeys

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/subject"
)

// plan is what is to be done about an ApiKey.
type plan struct {
	facts
	outcome subject.Outcome

	// newKey replaces the key in force; nil: it stays. Then nothing else is to be done in this pass.
	newKey *newKey
	// first says that there was none before, as far as the caches know.
	first bool
	// claims are those to be written, before anything else.
	claims []claimState
	// repair is the record as it should be; nil: it is.
	repair *published.KeyRecord
	// remove are delivered Secrets that are of no use any more.
	remove []removal
	// move is the Secret whose key is to be delivered under another name; nil: none.
	move *delivered
	// notes are what a person should know.
	notes []note
}

// idle reports whether nothing is to be done.
func (p plan) idle() bool {
	return p.newKey == nil && p.repair == nil && len(p.claims) == 0 && len(p.remove) == 0 && p.move == nil && len(p.notes) == 0
}

// decide is pure. A key that cannot be replaced now goes on as it is, with its state and expiry kept
// in line: what stands in the way of a new key must not keep a person from disabling the old one.
func decide(f facts) plan {
	p := plan{facts: f, outcome: verdict(f)}
	p.claims = missingClaims(f, p.outcome.IsReady())
	if p.outcome.IsReady() {
		if p.newKey = wantedKey(f); p.newKey != nil {
			return p
		}
		p.move = misplaced(f)
		p.notes = notesFor(f)
	}
	p.repair = repair(f)
	p.remove = removals(f)
	return p
}

// newKey is a key to be issued.
type newKey struct {
	occasion
	// base is the record that the rotation starts from: as the spec wants it, one generation before.
	base published.KeyRecord
	// resume says that the Secret to deliver holds a key of this very generation: an earlier pass
	// ended between delivering and publishing it.
	resume bool
}

func (n newKey) generation() int64 { return n.base.Generation + 1 }

// wantedKey returns the key that is to replace the one in force; nil: none.
func wantedKey(f facts) *newKey {
	why, needed := occasionFor(f)
	if !needed {
		return nil
	}
	generation := nextGeneration(f)
	base, known := f.ownRecord()
	if !known {
		base.Revision, base.Current.CreatedAt = f.lastKnown()
	}
	base.KeyID = published.ID(f.apiKey.UID)
	base.MerchantID = f.merchantID
	base.Source.UID = f.apiKey.UID
	base.Generation = generation - 1
	base.HandledDigest = f.digest
	base = asSpecified(base, f)
	base.HandledTrigger = f.apiKey.Spec.Rotation.Trigger
	pending := f.deliveredAs(f.target())
	return &newKey{occasion: why, base: base, resume: pending != nil && pending.generation() == generation}
}

// lastKnown returns the revision and the time of creation that a record in place of a lost one must
// exceed, for replicas order what they know by them.
func (f facts) lastKnown() (revision int64, created time.Time) {
	if f.outdated() {
		revision, created = f.record.Revision, f.record.Current.CreatedAt
	}
	if last := f.apiKey.Status.LastRotation; last != nil {
		if reported := last.Time.Add(time.Second).UTC(); reported.After(created) { // a status holds whole seconds
			created = reported
		}
	}
	return revision, created
}

// nextGeneration is above every generation there is a trace of, for a replica that remembers a higher
// one would refuse the key. A delivered Secret is such a trace only if it is further ahead than an
// interrupted pass explains: then record and status are lost together.
func nextGeneration(f facts) int64 {
	last := f.apiKey.Status.KeyGeneration
	if f.record != nil {
		last = max(last, f.record.Generation)
	} else if f.published != nil {
		last = max(last, published.ReadableGeneration(f.published))
	}
	for _, d := range f.delivered {
		if d.generation() > last+1 {
			last = d.generation()
		}
	}
	return last + 1
}

// nextLook is when time alone will give something to do; zero: never.
func nextLook(f facts, outcome subject.Outcome) time.Time {
	var next time.Time
	moments := []time.Time{dueRotation(f), retentionEnd(f), overlapEnd(f), recheck(f, outcome)}
	for _, n := range notices(f) {
		moments = append(moments, n.starts())
	}
	for _, at := range moments {
		if at.After(f.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
