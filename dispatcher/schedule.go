package dispatcher

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"
)

// Schedule is when an event is tried: the first entry is 0, each other one the time after the previous attempt. When it
// is used up, the event becomes a dead letter.
type Schedule []time.Duration

// DefaultSchedule has eleven attempts in a little more than three days.
func DefaultSchedule() Schedule {
	return Schedule{
		0, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour,
	}
}

// Next returns the time to the next attempt after this many failed ones; false: there is none. It is the entry plus
// jitter, or the Retry-After of the endpoint if that is longer, but at most twice the entry. Jitter is in [0,1).
func (s Schedule) Next(failed int, retryAfter time.Duration, jitter float64) (time.Duration, bool) {
	if failed >= len(s) {
		return 0, false
	}
	step := s[failed]
	return max(addJitter(step, jitter), min(retryAfter, 2*step)), true
}

func (s Schedule) validate() error {
	if len(s) == 0 || s[0] != 0 {
		return errors.New("the retry schedule must begin with 0")
	}
	for _, step := range s {
		if step < 0 {
			return errors.New("the retry schedule must not have negative steps")
		}
	}
	return nil
}

// addJitter returns a time between d and 1.2 d, so that what failed together is not retried together.
func addJitter(d time.Duration, jitter float64) time.Duration {
	const maxJitter = 0.2
	return d + time.Duration(float64(d)*maxJitter*jitter)
}

// jitter returns a random number in [0,1).
func jitter() float64 {
	const digits = 53 // of a float64
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // never fails: without randomness it ends the program
	return float64(binary.BigEndian.Uint64(bits[:])>>(64-digits)) / (1 << digits)
}
