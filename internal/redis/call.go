package redis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Call is one run of a script: its keys, then its arguments, in the order and with the names of the script's first lines. A name that does not
// stand there panics: then the program is wrong. The last ones may be left out; behind all of them there may be more, without a name.
type Call struct {
	script *Script
	// text are all values, one behind the other: one text for all costs a request less than a text for each.
	text   strings.Builder
	start  int // of the value that is written
	values []string
	keys   int
}

// typicalText is room for the text of most calls.
const typicalText = 512

// NewCall returns a call without keys and arguments.
func NewCall(script *Script) Call { return Call{script: script} }

// end ends a value.
func (c *Call) end() {
	c.values = append(c.values, c.text.String()[c.start:]) // stays as it is, also when the text moves to get more room
	c.start = c.text.Len()
}

// check panics unless the next value has this name.
func (c *Call) check(what string, names []string, place int, name string) {
	if place >= len(names) || names[place] != name {
		panic(fmt.Sprintf("%s does not name %s %d %q, but has %q", c.script.operation, what, place+1, name, names))
	}
}

func (c *Call) endKey(name string) {
	c.check("key", c.script.keys, c.keys, name)
	c.end()
	c.keys++
}

// Key writes a key. All keys come before all arguments.
func (c *Call) Key(name string, space Keyspace, kind string, rest ...string) {
	c.writeKey(space, kind, rest)
	c.endKey(name)
}

// SkipTo goes on with the key of this name. The first key stands in the places of those between, which this call does not need.
func (c *Call) SkipTo(name string) {
	for _, skipped := range c.script.keys[c.keys:max(c.keys, slices.Index(c.script.keys, name))] {
		c.text.WriteString(c.values[0])
		c.endKey(skipped)
	}
}

// MoreKey writes a key behind those that have names.
func (c *Call) MoreKey(space Keyspace, kind string, rest ...string) {
	c.more("key", c.script.keys, c.keys)
	c.writeKey(space, kind, rest)
	c.end()
	c.keys++
}

func (c *Call) writeKey(space Keyspace, kind string, rest []string) {
	if c.values == nil {
		c.values = make([]string, 0, len(c.script.keys)+len(c.script.args))
		c.text.Grow(typicalText)
	}
	if len(c.values) > c.keys {
		panic(c.script.operation + " has a key behind its arguments")
	}
	c.text.WriteString(string(space))
	c.text.WriteString(kind)
	for _, part := range rest {
		c.text.WriteString(part)
	}
}

// more panics unless all names are given.
func (c *Call) more(what string, names []string, place int) {
	if place < len(names) {
		panic(fmt.Sprintf("%s names its %s %d %q", c.script.operation, what, place+1, names[place]))
	}
}

// End ends an argument that was written in parts.
func (c *Call) End(name string) {
	c.check("argument", c.script.args, len(c.values)-c.keys, name)
	c.end()
}

// Text writes an argument.
func (c *Call) Text(name, argument string) {
	c.text.WriteString(argument)
	c.End(name)
}

// Int writes an argument.
func (c *Call) Int(name string, n int64) {
	c.WriteInt(n)
	c.End(name)
}

// Millis writes an argument: whole milliseconds.
func (c *Call) Millis(name string, d time.Duration) { c.Int(name, d.Milliseconds()) }

// Flag writes an argument: 'yes', or 'no'.
func (c *Call) Flag(name string, set bool) {
	if set {
		c.Text(name, "yes")
	} else {
		c.Text(name, "no")
	}
}

// More writes an argument behind those that have names.
func (c *Call) More(argument string) {
	c.more("argument", c.script.args, len(c.values)-c.keys)
	c.text.WriteString(argument)
	c.end()
}

// MoreInt writes an argument behind those that have names.
func (c *Call) MoreInt(n int64) {
	c.more("argument", c.script.args, len(c.values)-c.keys)
	c.WriteInt(n)
	c.end()
}

// WriteString writes a part of an argument.
func (c *Call) WriteString(part string) { c.text.WriteString(part) }

// WriteBytes writes a part of an argument.
func (c *Call) WriteBytes(part []byte) { c.text.Write(part) }

// WriteInt writes a part of an argument.
func (c *Call) WriteInt(n int64) {
	var room [20]byte
	c.text.Write(strconv.AppendInt(room[:0], n, 10))
}

// command returns the whole call, but for its first two words. Its values are pointers, which need not be boxed one by one.
func (c *Call) command() []any {
	command := make([]any, firstKeyPos+len(c.values))
	command[2] = c.keys
	for i := range c.values {
		command[firstKeyPos+i] = &c.values[i]
	}
	return command
}
