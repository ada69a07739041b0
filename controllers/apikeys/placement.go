package apikeys

import (
	"fmt"
	"time"
)

// removal is a delivered Secret to be deleted, and what people are told.
type removal struct {
	delivered
	reason, why string
}

// removals are the delivered Secrets that no longer serve: their key is not in force, or was to stay
// for a time that is over, or is delivered under another name by now.
func removals(f facts) []removal {
	record, known := f.ownRecord()
	if !known {
		return nil
	}
	var out []removal
	placed := f.deliveredAs(f.target())
	for _, d := range f.delivered {
		switch {
		case !d.holds(record):
			out = append(out, removal{d, reasonStaleDelivery, fmt.Sprintf(
				"it does not hold the key in force, generation %d, issued by cause %s", record.Generation, record.LastRotation.Cause)})
		case retentionOver(f):
			out = append(out, removal{d, reasonRetentionEnded, "delivery.retainSeconds are over"})
		case d.Name != f.target() && placed != nil && placed.holds(record):
			out = append(out, removal{d, reasonDeliveryMoved, "the key is delivered in Secret " + f.target()})
		}
	}
	return out
}

// misplaced returns the Secret that holds the key in force under a name that spec no longer gives,
// while no Secret of ours has that name; nil: none.
func misplaced(f facts) *delivered {
	record, known := f.ownRecord()
	if !known || f.target() == "" || f.deliveredAs(f.target()) != nil || retentionOver(f) {
		return nil
	}
	for i := range f.delivered {
		if f.delivered[i].holds(record) {
			return &f.delivered[i]
		}
	}
	return nil
}

// retentionEnd is when a delivered Secret has been there for long enough; zero: it stays.
func retentionEnd(f facts) time.Time {
	record, known := f.ownRecord()
	delivery := f.apiKey.Spec.Delivery
	if !known || delivery == nil || seconds(delivery.RetainSeconds) == 0 {
		return time.Time{}
	}
	return record.LastRotation.Time.Add(seconds(delivery.RetainSeconds))
}

func retentionOver(f facts) bool {
	end := retentionEnd(f)
	return !end.IsZero() && !f.now.Before(end)
}
