package store

import (
	"encoding/hex"
	"strconv"
)

// words are the keys and then the arguments of a script, written one behind the other: one text for all of them costs a
// request less than a text for each.
type words struct {
	text  []byte
	ends  [maxWords]int
	count int
	keys  int
	// use: the last use of the API key is among what is to be written.
	use bool
}

// maxWords is what the longest call has: that which creates a session.
const maxWords = 20

// typicalText is room for the words of most calls.
const typicalText = 768

func (w *words) end() {
	w.ends[w.count] = len(w.text)
	w.count++
}

// add writes a word of two parts.
func (w *words) add(first, second string) {
	w.text = append(append(w.text, first...), second...)
	w.end()
}

// key writes the name of a key, and arguments follow the last of them.
func (w *words) key(space keyspace, kind, name string) {
	w.text = append(append(append(w.text, space...), kind...), name...)
	w.end()
	w.keys = w.count
}

func (w *words) integer(n int64) {
	w.text = strconv.AppendInt(w.text, n, 10)
	w.end()
}

// claim writes a number and a digest.
func (w *words) claim(n int64, digest []byte) {
	w.text = append(strconv.AppendInt(w.text, n, 10), ' ')
	w.text = hex.AppendEncode(w.text, digest)
	w.end()
}

// command returns the whole call, but for its first two words. Its texts are pointers, which need not be boxed one by one.
func (w *words) command() []any {
	whole := string(w.text)
	texts := make([]string, w.count)
	command := make([]any, 3, 3+maxWords)
	command[2] = w.keys
	start := 0
	for i, end := range w.ends[:w.count] {
		texts[i] = whole[start:end]
		command = append(command, &texts[i])
		start = end
	}
	return command
}
