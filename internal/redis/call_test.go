package redis

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func callScript() *Script {
	return NewScript("example", "local one_key, two_key, last_key = unpack(KEYS)\nlocal name, count = unpack(ARGV)\n\nreturn 1\n", nil, nil)
}

// written returns the words of a call behind the digest.
func written(call *Call) (words []string) {
	command := call.command()
	words = append(words, fmt.Sprint(command[2]))
	for _, word := range command[firstKeyPos:] {
		words = append(words, *word.(*string))
	}
	return words
}

// A call is the number of keys, the keys, and the arguments, also when its text moves to get more room.
func TestCall(t *testing.T) {
	space := BucketKeyspace(7)
	call := NewCall(callScript())
	call.Key("one_key", space, "kind:", "a", "b")
	call.SkipTo("last_key")
	call.Key("last_key", space, "kind")
	call.MoreKey(space, "more:", "c")
	long := string(make([]byte, 10*typicalText))
	call.WriteString("n=")
	call.WriteInt(-1)
	call.WriteBytes([]byte(long))
	call.End("name")
	call.Millis("count", 1500*time.Microsecond)
	call.More("x")
	call.MoreInt(2)
	first, last := string(space)+"kind:ab", string(space)+"kind"
	want := []string{"4", first, first, last, string(space) + "more:c", "n=-1" + long, "1", "x", "2"}
	if got := written(&call); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A name that is not the script's next one is a mistake in the program, which the first run shows.
func TestCall_WrongName(t *testing.T) {
	for name, write := range map[string]func(*Call){
		"another key":        func(c *Call) { c.Key("two_key", BucketKeyspace(0), "kind") },
		"no such key":        func(c *Call) { c.SkipTo("three_key"); c.Key("three_key", BucketKeyspace(0), "kind") },
		"an argument":        func(c *Call) { c.Text("count", "") },
		"one too many":       func(c *Call) { c.Text("name", ""); c.Int("count", 1); c.Flag("count", true) },
		"more too soon":      func(c *Call) { c.Text("name", ""); c.More("x") },
		"more keys too soon": func(c *Call) { c.MoreKey(BucketKeyspace(0), "kind") },
		"a key too late":     func(c *Call) { c.Text("name", ""); c.Key("two_key", BucketKeyspace(0), "kind") },
		"a more key too late": func(c *Call) {
			c.SkipTo("last_key")
			c.Key("last_key", BucketKeyspace(0), "kind")
			c.Text("name", "")
			c.MoreKey(BucketKeyspace(0), "kind")
		},
	} {
		t.Run(name, func(t *testing.T) {
			call := NewCall(callScript())
			if name != "another key" {
				call.Key("one_key", BucketKeyspace(0), "kind")
			}
			defer func() {
				if recover() == nil {
					t.Error("nothing failed")
				}
			}()
			write(&call)
		})
	}
}
