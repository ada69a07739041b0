package ratelimit

import "time"

// Policy bounds the requests of one caller: Burst at once, RequestsPerSecond sustained. Values
// below 1 count as 1.
type Policy struct {
	RequestsPerSecond int64
	Burst             int64
}

// Interval is the emission interval, what one request costs: a whole number of microseconds,
// rounded up so that never more than Burst + RequestsPerSecond * elapsed requests pass.
func (p Policy) Interval() time.Duration {
	rate := max(p.RequestsPerSecond, 1)
	const second = int64(time.Second / time.Microsecond)
	return time.Duration((second+rate-1)/rate) * time.Microsecond
}

// Window is how long a spent burst takes to come back.
func (p Policy) Window() time.Duration {
	return p.Interval() * time.Duration(max(p.Burst, 1))
}

// Admitted returns what is left after a request that passed, given the caller's backlog: how far
// the moment by which all its requests are paid for lies ahead, this request included.
func (p Policy) Admitted(backlog time.Duration) Quota {
	return Quota{
		Policy:    p,
		Remaining: int64(max(p.Window()-backlog, 0) / p.Interval()),
		Reset:     max(backlog, 0),
	}
}

// Refused returns what a refused caller is told, given its backlog without the refused request.
func (p Policy) Refused(backlog time.Duration) Quota {
	quota := p.Admitted(backlog)
	quota.Remaining = 0
	quota.RetryAfter = max(backlog+p.Interval()-p.Window(), 0)
	return quota
}
