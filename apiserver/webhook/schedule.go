package webhook

import "time"

// Schedule says when an event is tried: each entry is the time from the attempt before, or from the event, to the
// next attempt. It is exact to 20 %, so that what failed together is not tried again together.
type Schedule []time.Duration

// DefaultSchedule gives an endpoint three days and a few hours.
func DefaultSchedule() Schedule {
	return Schedule{
		0, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour,
	}
}
