package dispatcher

import (
	"errors"
	"time"
)

// Schedule says when an event is tried: the first entry is 0, each other the time from one attempt to the next. The
// attempt after the last entry is none: the event becomes a dead letter.
type Schedule []time.Duration

// DefaultSchedule gives an endpoint a little more than three days.
func DefaultSchedule() Schedule {
	return Schedule{
		0, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour,
	}
}

// spread is how much later an attempt may be than its step says, so that what failed together is not tried again
// together.
const spread = 0.2

// Next returns the time to the next attempt after this many failed ones; false: there is none. It is the step, or what
// the endpoint asked for if that is longer, but never more than twice the step. The lot is in [0,1).
func (s Schedule) Next(failed int, retryAfter time.Duration, lot float64) (time.Duration, bool) {
	if failed >= len(s) {
		return 0, false
	}
	step := s[failed]
	return max(later(step, lot), min(retryAfter, 2*step)), true
}

// later returns a time between d and d and a fifth.
func later(d time.Duration, lot float64) time.Duration {
	return d + time.Duration(float64(d)*spread*lot)
}

func (s Schedule) validate() error {
	if len(s) == 0 || s[0] != 0 {
		return errors.New("the schedule must begin with 0")
	}
	for _, step := range s {
		if step < 0 {
			return errors.New("the schedule must not have negative steps")
		}
	}
	return nil
}
