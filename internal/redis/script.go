package redis

import (
	"context"
	_ "embed" // clock.lua
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua program, as one server runs it and as a Redis Cluster does.
type Script struct {
	operation         string
	single, clustered program
}

// program is a source and the digest Redis remembers it by.
type program struct{ source, sha string }

func programOf(source string) program { return program{source, redis.NewScript(source).Hash()} }

// publishWord is how scripts name the command that publishes a message. A Redis Cluster sends PUBLISH to all its servers, and SPUBLISH
// to those of the channel's slot only. Before Redis 7, which set this variable, it has no SPUBLISH.
const (
	publishWord      = "PUBLISH_COMMAND"
	publishSingle    = "'PUBLISH'"
	publishClustered = "(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH')"
)

// NewScript returns the script that consists of the parts, one after the other. The operation is its name in metrics and spans.
func NewScript(operation string, parts ...string) *Script {
	source := "-- " + operation + "\n" + strings.Join(parts, "\n")
	return &Script{
		operation: operation,
		single:    programOf(strings.ReplaceAll(source, publishWord, publishSingle)),
		clustered: programOf(strings.ReplaceAll(source, publishWord, publishClustered)),
	}
}

// programFor returns what this client's Redis runs.
func (c *Client) programFor(script *Script) *program {
	if c.Clustered() {
		return &script.clustered
	}
	return &script.single
}

// Part returns a Lua file: one of a script's own, or a part in lib/ that several scripts share. A part begins with what it expects and defines,
// includes no other one and never returns. It panics if there is no such file: then the program is wrong.
func Part(files fs.FS, name string) string {
	text, err := fs.ReadFile(files, name+".lua")
	if err != nil {
		panic(fmt.Sprintf("the program was built without a part of its Lua: %v", err))
	}
	return string(text)
}

// Function makes a part that defines one Lua function of parts: they are run when it is called, and it returns one of their locals.
func Function(signature, result string, parts ...string) string {
	return "local function " + signature + "\n" + strings.Join(parts, "\n") + "\nreturn " + result + "\nend\n"
}

// Clock is the part that every other one expects; see clock.lua.
//
//go:embed clock.lua
var Clock string

// Fields are those of a hash that scripts read together, in this order.
type Fields struct{ replacer *strings.Replacer }

// NewFields returns fields, each given as "NAME=field". In Lua the list stands for all of them, as arguments of HMGET, and [NAME] for the
// index of one in its reply.
func NewFields(list string, fields ...string) Fields {
	quoted := make([]string, len(fields))
	var pairs []string
	for i, field := range fields {
		name, short, _ := strings.Cut(field, "=")
		quoted[i] = "'" + short + "'"
		pairs = append(pairs, "["+name+"]", "["+strconv.Itoa(i+1)+"]")
	}
	return Fields{strings.NewReplacer(append(pairs, list, strings.Join(quoted, ", "))...)}
}

// In returns the Lua with the names replaced.
func (f Fields) In(lua string) string { return f.replacer.Replace(lua) }

// Operation is the script's name in metrics and spans.
func (s *Script) Operation() string { return s.operation }

// SHA is the digest by which one server remembers the script.
func (s *Script) SHA() string { return s.single.sha }

// Run sends the script once and returns its reply. A server that does not know the script yet (it
// was restarted, or it is the new master) says so without having run anything, so only then is it
// sent again, with its source. Any error is ErrUnavailable or ErrCorrupt.
func (c *Client) Run(ctx context.Context, script *Script, keys []string, args ...any) (Reply, error) {
	return c.run(ctx, script, commandOf(keys, args), "")
}

// RunCall is Run for the scripts that each request needs: it allocates less.
func (c *Client) RunCall(ctx context.Context, script *Script, call *Call) (Reply, error) {
	return c.run(ctx, script, call.command(), "")
}

// RunReplicated is Run, and also waits until Options.Replicas have what the script wrote; fewer are ErrUnavailable.
func (c *Client) RunReplicated(ctx context.Context, script *Script, keys []string, args ...any) (Reply, error) {
	if c.replicas == nil {
		return c.Run(ctx, script, keys, args...)
	}
	return c.run(ctx, script, commandOf(keys, args), keys[0])
}

// Replicated reports whether RunReplicated waits for any replica.
func (c *Client) Replicated() bool { return c.replicas != nil }

// firstKeyPos is the word by which a Redis Cluster is routed.
const firstKeyPos = 3

// commandOf leaves room for the first two words.
func commandOf(keys []string, args []any) []any {
	command := make([]any, 3, 3+len(keys)+len(args))
	command[2] = len(keys)
	for _, key := range keys {
		command = append(command, key)
	}
	return append(command, args...)
}

// run fills in the first two words of the command. With a key it waits for the replicas of its server.
func (c *Client) run(ctx context.Context, script *Script, command []any, replicatedKey string) (Reply, error) {
	ctx, span := c.tracer.StartScript(ctx, script.operation)
	start := time.Now()
	program := c.programFor(script)
	command[0], command[1] = "evalsha", &program.sha
	answer, err := c.send(ctx, command, replicatedKey)
	if isNoScript(err) {
		command[0], command[1] = "eval", &program.source
		answer, err = c.send(ctx, command, replicatedKey)
	}
	cause := causeOf(err)
	c.metrics.observe(script.operation, time.Since(start), cause)
	span.EndScript(cause)
	if err != nil {
		return Reply{}, failure(err)
	}
	return replyOf(answer), nil
}

// isNoScript reports whether the server does not know the script yet. It allocates nothing if there is no error.
func isNoScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

func (c *Client) send(ctx context.Context, command []any, replicatedKey string) (any, error) {
	cmd := redis.NewCmd(ctx, command...)
	cmd.SetFirstKeyPos(firstKeyPos)
	var err error
	if replicatedKey != "" {
		err = c.replicas.process(ctx, cmd, replicatedKey)
	} else {
		err = c.Process(ctx, cmd)
	}
	if err != nil {
		return nil, err // the command may still be under way
	}
	return cmd.Val(), nil
}

// KeyGroup are the keys of one run of a script.
type KeyGroup []string

// RunEach runs a script once for each group of keys. The groups are in slots of their own, so the scripts are sent together, one
// batch to each server of a Redis Cluster. Each group has its own reply or error.
func (c *Client) RunEach(ctx context.Context, script *Script, groups []KeyGroup) ([]Reply, []error) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	batch := c.client.Pipeline()
	sent := make([]*redis.Cmd, len(groups))
	for i, keys := range groups {
		sent[i] = batch.EvalSha(bounded, c.programFor(script).sha, keys)
	}
	start := time.Now()
	_, err := batch.Exec(bounded) // the first; each has its own
	if isNoScript(err) {
		err = nil
	}
	c.metrics.observe(script.operation, time.Since(start), causeOf(err))
	replies, errs := make([]Reply, len(groups)), make([]error, len(groups))
	for i, command := range sent {
		answer, err := command.Result()
		switch {
		case isNoScript(err):
			replies[i], errs[i] = c.Run(ctx, script, groups[i])
		case err != nil:
			errs[i] = failure(err)
		default:
			replies[i] = replyOf(answer)
		}
	}
	return replies, errs
}

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
