package store

import (
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// reply reads the answer of a script value by value. What is missing or of another kind marks it as
// broken and reads as zero, so that a decoder checks once, at its end.
type reply struct {
	rest   []any
	broken bool
	lone   [1]any
}

// replyOf reads an answer of one value or of many.
func replyOf(answer any) *reply {
	if values, ok := answer.([]any); ok {
		return &reply{rest: values}
	}
	r := &reply{lone: [1]any{answer}}
	r.rest = r.lone[:]
	return r
}

func (r *reply) next() any {
	if len(r.rest) == 0 {
		r.broken = true
		return nil
	}
	value := r.rest[0]
	r.rest = r.rest[1:]
	return value
}

func (r *reply) text() string {
	text, ok := r.next().(string)
	r.broken = r.broken || !ok
	return text
}

// integer reads a number that a script computed, or one that Redis holds as text.
func (r *reply) integer() int64 {
	switch value := r.next().(type) {
	case int64:
		return value
	case string:
		number, err := strconv.ParseInt(value, 10, 64)
		r.broken = r.broken || err != nil
		return number
	}
	r.broken = true
	return 0
}

func (r *reply) millis() time.Time { return time.UnixMilli(r.integer()).UTC() }

// status reads that of a session; a pending one has none written down.
func (r *reply) status() session.Status {
	if r.absent() {
		return session.Pending
	}
	status := session.Status(r.text())
	r.broken = r.broken || !status.Final()
	return status
}

// list reads a nested answer. It is broken on its own.
func (r *reply) list() *reply {
	values, ok := r.next().([]any)
	r.broken = r.broken || !ok
	return &reply{rest: values}
}

// pairs reads a nested answer of names and values in turn, as HGETALL gives it.
func (r *reply) pairs() map[string]string {
	flat := r.list()
	pairs := make(map[string]string, len(flat.rest)/2)
	for len(flat.rest) > 0 {
		name := flat.text()
		pairs[name] = flat.text()
	}
	r.broken = r.broken || flat.broken
	return pairs
}

// absent reports whether the next value is a missing one, and skips it if so.
func (r *reply) absent() bool {
	if len(r.rest) > 0 && r.rest[0] == nil {
		r.rest = r.rest[1:]
		return true
	}
	return false
}

func (r *reply) optionalText() string {
	if r.absent() {
		return ""
	}
	return r.text()
}

func (r *reply) optionalMillis() time.Time {
	if r.absent() {
		return time.Time{}
	}
	return r.millis()
}
