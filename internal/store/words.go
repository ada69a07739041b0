package store

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// words are the keys and then the arguments of a script, written one behind the other: one text for all of them costs a
// request less than a text for each.
type words struct {
	text  strings.Builder
	ends  [maxWords]int
	count int
	keys  int
	// use: the last use of the API key is among what is to be written.
	use bool
}

const (
	// maxWords is what the longest call has: that which creates a session.
	maxWords = 24
	// typicalText is room for the words of most calls.
	typicalText = 512
)

// end ends a word.
func (w *words) end() {
	w.ends[w.count] = w.text.Len()
	w.count++
}

// add writes a word.
func (w *words) add(word string) {
	w.text.WriteString(word)
	w.end()
}

// key writes the name of a key. All keys come before all arguments.
func (w *words) key(space keyspace, kind, name string) {
	if w.count == 0 {
		w.text.Grow(typicalText)
	}
	w.text.WriteString(string(space))
	w.text.WriteString(kind)
	w.text.WriteString(name)
	w.end()
	w.keys = w.count
}

// outboxKeys write those of a script that may have to record the event which has the mark among those of a session.
func (w *words) outboxKeys(space keyspace, id session.ID, mark outbox.Mark) {
	w.key(space, eventKind, outbox.SessionEventID(id, mark))
	w.key(space, queueKind, "")
	w.key(space, dueKind, "")
}

// digits write a part of a word.
func (w *words) digits(n int64) {
	var room [20]byte
	w.text.Write(strconv.AppendInt(room[:0], n, 10))
}

func (w *words) integer(n int64) {
	w.digits(n)
	w.end()
}

// claim writes the order of what is known of a key, and a digest.
func (w *words) claim(order published.Order, digest apikey.Digest) {
	w.digits(order.Issued)
	w.text.WriteByte(' ')
	w.digits(order.Revision)
	w.text.WriteByte(' ')
	var room [2 * len(digest)]byte
	hex.Encode(room[:], digest[:])
	w.text.Write(room[:])
	w.end()
}

// command returns the whole call, but for its first two words. Its texts are pointers, which need not be boxed one by one.
func (w *words) command() []any {
	whole := w.text.String()
	texts := make([]string, w.count)
	command := make([]any, 3+w.count)
	command[2] = w.keys
	start := 0
	for i, end := range w.ends[:w.count] {
		texts[i] = whole[start:end]
		command[3+i] = &texts[i]
		start = end
	}
	return command
}
