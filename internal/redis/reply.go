package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Reply reads the answer of a script value by value. What is missing or of another kind marks it as
// broken and reads as zero, so that a decoder checks Err once, at its end.
type Reply struct {
	single   any // the answer, if it is one value
	isSingle bool
	rest     []any
	broken   bool
}

// newReply reads an answer of one value or of many.
func newReply(answer any) Reply {
	if values, ok := answer.([]any); ok {
		return Reply{rest: values}
	}
	return Reply{single: answer, isSingle: true}
}

// Err is ErrCorrupt once something was missing or of another kind, or not as Require wants it.
func (r *Reply) Err() error {
	if r.broken {
		return ErrCorrupt
	}
	return nil
}

// Require marks the reply as broken unless it is ok.
func (r *Reply) Require(ok bool) { r.broken = r.broken || !ok }

// More reports whether there is another value in a list.
func (r *Reply) More() bool { return len(r.rest) > 0 }

func (r *Reply) next() any {
	if r.isSingle {
		r.isSingle = false
		return r.single
	}
	if len(r.rest) == 0 {
		r.broken = true
		return nil
	}
	value := r.rest[0]
	r.rest = r.rest[1:]
	return value
}

// RequireOK reads the first word of a reply, with which a script says that it succeeded. Any other one breaks the reply.
func (r *Reply) RequireOK() { r.Require(r.Text() == "OK") }

// Text reads a text.
func (r *Reply) Text() string {
	text, ok := r.next().(string)
	r.Require(ok)
	return text
}

// TextAt returns the text at a place among the values that were not read yet, and reads none; empty: there is none.
func (r *Reply) TextAt(place int) string {
	if len(r.rest) <= place {
		return ""
	}
	text, _ := r.rest[place].(string)
	return text
}

// Int reads a number that a script computed, or one that Redis holds as text.
func (r *Reply) Int() int64 {
	switch value := r.next().(type) {
	case int64:
		return value
	case string:
		number, err := strconv.ParseInt(value, 10, 64)
		r.Require(err == nil)
		return number
	}
	r.broken = true
	return 0
}

// Millis reads a time in Unix milliseconds.
func (r *Reply) Millis() time.Time { return time.UnixMilli(r.Int()).UTC() }

// List reads a nested reply. It is broken on its own.
func (r *Reply) List() Reply {
	values, ok := r.next().([]any)
	r.Require(ok)
	return Reply{rest: values}
}

// Map reads a nested reply of names and values in turn, as HGETALL gives it.
func (r *Reply) Map() map[string]string {
	flat := r.List()
	pairs := make(map[string]string, len(flat.rest)/2)
	for flat.More() {
		name := flat.Text()
		pairs[name] = flat.Text()
	}
	r.Require(!flat.broken)
	return pairs
}

// Absent reports whether the next value is a missing one, and skips it if so.
func (r *Reply) Absent() bool {
	if len(r.rest) > 0 && r.rest[0] == nil {
		r.rest = r.rest[1:]
		return true
	}
	return false
}

// OptionalText reads a text; empty: it is missing.
func (r *Reply) OptionalText() string {
	if r.Absent() {
		return ""
	}
	return r.Text()
}

// OptionalMillis reads a time in Unix milliseconds; zero: it is missing.
func (r *Reply) OptionalMillis() time.Time {
	if r.Absent() {
		return time.Time{}
	}
	return r.Millis()
}

// None of these errors ever holds a key, a digest or an e-mail address.
var (
	// ErrCorrupt says that Redis holds something this program would not have written.
	ErrCorrupt = errors.New("redis holds unexpected data")
	// ErrUnavailable says that Redis gave no answer in time or rejected the work. Whether the script ran is unknown.
	ErrUnavailable = errors.New("redis is unavailable")
	// ErrFull is an ErrUnavailable: Redis is at its maxmemory, and the work begins with a write that needs some.
	ErrFull = errors.New("it has no memory left")
	// ErrSlotMoves is an ErrUnavailable: some keys of the work are still at one server of a Redis Cluster, and some already at another.
	ErrSlotMoves = errors.New("the keys are on their way to another server")
	// ErrEviction says that Redis may evict keys, and with them sessions and revocations.
	ErrEviction = errors.New("redis must have maxmemory-policy noeviction")
)

// scriptPlace is what Redis before 7.0 writes in front of the error of a command in a script.
var scriptPlace = regexp.MustCompile(`^ERR Error running script \(call to \w+\): (@user_script: ?\d+: )+-?`)

// failure turns an error of the client into ours. Of an error that Redis answered only the code is
// kept: the text may quote the command, and with it keys and digests.
func failure(err error) error {
	answered, ok := errors.AsType[redis.Error](err)
	if !ok {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	text := scriptPlace.ReplaceAllString(answered.Error(), "")
	code, _, _ := strings.Cut(text, " ")
	if code == "WRONGTYPE" {
		return fmt.Errorf("%w: it answered %s", ErrCorrupt, code)
	}
	switch code {
	case "OOM":
		return fmt.Errorf("%w: it answered %s: %w", ErrUnavailable, code, ErrFull)
	case "TRYAGAIN":
		return fmt.Errorf("%w: it answered %s: %w", ErrUnavailable, code, ErrSlotMoves)
	}
	return fmt.Errorf("%w: it answered %s", ErrUnavailable, code)
}

// ServesNobody reports whether an error says that the server does not serve other work either. A full one reads, and takes what frees memory;
// one that gives a slot away serves its other slots.
func ServesNobody(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrFull) && !errors.Is(err, ErrSlotMoves)
}

// errorCause sorts the client's errors, for metrics and spans; empty: none.
func errorCause(err error) string {
	if err == nil {
		return ""
	}
	switch {
	case isAnswer(err):
		return "answer"
	case errors.Is(err, errQueue):
		return "queue"
	case errors.Is(err, errNotReplicated):
		return "replicas"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout):
		return "timeout"
	}
	return "connection"
}

// isAnswer reports whether an error is what a server answered.
func isAnswer(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}
