package redis

import (
	"strconv"
	"strings"
)

// Call is the keys and then the arguments of a script, written one behind the other: one text for all of them costs a
// request less than a text for each.
type Call struct {
	text  strings.Builder
	ends  [maxArgs]int
	count int
	keys  int
}

const (
	// maxArgs is the number of keys and arguments of the longest call, which creates a session.
	maxArgs = 24
	// typicalText is room for the text of most calls.
	typicalText = 512
)

// End ends a key or an argument.
func (c *Call) End() {
	c.ends[c.count] = c.text.Len()
	c.count++
}

// Key writes the name of a key. All keys come before all arguments.
func (c *Call) Key(space Keyspace, kind string, name ...string) {
	if c.count == 0 {
		c.text.Grow(typicalText)
	}
	c.text.WriteString(string(space))
	c.text.WriteString(kind)
	for _, part := range name {
		c.text.WriteString(part)
	}
	c.End()
	c.keys = c.count
}

// Text writes an argument.
func (c *Call) Text(argument string) {
	c.text.WriteString(argument)
	c.End()
}

// Int writes an argument.
func (c *Call) Int(n int64) {
	c.WriteInt(n)
	c.End()
}

// Flag writes an argument: '1', or '0'.
func (c *Call) Flag(set bool) { c.Text(Flag(set)) }

// WriteString writes a part of an argument.
func (c *Call) WriteString(part string) { c.text.WriteString(part) }

// WriteBytes writes a part of an argument.
func (c *Call) WriteBytes(part []byte) { c.text.Write(part) }

// WriteInt writes a part of an argument.
func (c *Call) WriteInt(n int64) {
	var room [20]byte
	c.text.Write(strconv.AppendInt(room[:0], n, 10))
}

// command returns the whole call, but for its first two words. Its texts are pointers, which need not be boxed one by one.
func (c *Call) command() []any {
	whole := c.text.String()
	texts := make([]string, c.count)
	command := make([]any, 3+c.count)
	command[2] = c.keys
	start := 0
	for i, end := range c.ends[:c.count] {
		texts[i] = whole[start:end]
		command[3+i] = &texts[i]
		start = end
	}
	return command
}

// Flag is how scripts are given a boolean.
func Flag(set bool) string {
	if set {
		return "1"
	}
	return "0"
}
