package redis

import (
	"context"
	_ "embed" // clock.lua
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Script is a Lua program, as one server runs it and as a Redis Cluster does.
type Script struct {
	operation string
	// keys and args are the names that its first lines give them.
	keys, args        []string
	single, clustered program
}

// program is a source and the digest Redis remembers it by.
type program struct{ source, sha string }

func newProgram(source string) program { return program{source, redis.NewScript(source).Hash()} }

// The values of const.PUBLISH, the command that publishes a message. A Redis Cluster sends PUBLISH to all its servers, and SPUBLISH to those of
// the channel's slot only. Before Redis 7, which set this variable, it has no SPUBLISH.
const (
	publishSingle    = "'PUBLISH'"
	publishClustered = "(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH')"
)

// signature is a line of a script's head that names its keys or its arguments.
var signature = regexp.MustCompile(`(?m)^local ([a-z_, ]+) = unpack\((KEYS|ARGV)(?:, 1, (\d+))?\)$`)

// numberedKey and numberedArg are a key and an argument that stand where their names should.
// Together they would have no literal prefix, which makes the search ten times as fast.
var numberedKey, numberedArg = regexp.MustCompile(`KEYS\[\d`), regexp.MustCompile(`ARGV\[\d`)

// Parts are pieces of Lua that scripts share, by their names.
type Parts map[string]string

// uses is the line that names the parts of a script, where they come.
var uses = regexp.MustCompile(`(?m)^-- uses: (.+)$`)

// NewScript returns the script of an operation, which is its name in metrics and spans.
//
//   - Its first lines name its keys and arguments: "local session_key, event_key = unpack(KEYS)". A list with more behind its names says how many
//     it names: "unpack(ARGV, 1, 2)".
//   - Its parts come in the place of "-- uses: clock, queue". A part may use what the parts before it define.
//   - Its constants stand in the place of their names, "const.MAX_FAILURES".
//
// Whatever is wrong with a name panics: then the program is wrong.
func NewScript(operation, file string, parts Parts, constants Constants) *Script {
	head, included := file, ""
	if at := uses.FindStringSubmatchIndex(file); at != nil {
		for name := range strings.SplitSeq(file[at[2]:at[3]], ", ") {
			part, known := parts[name]
			if !known {
				panic(fmt.Sprintf("%s uses %q, which is no part", operation, name))
			}
			included += part + "\n"
		}
		head, file = file[:at[0]], file[at[1]:]
		file = head + included + file
	}
	if numberedKey.MatchString(file) || numberedArg.MatchString(file) {
		panic(operation + " has a key or an argument without a name")
	}
	source := func(publish string) string {
		return "-- " + operation + "\n" + constants.With(Constants{"const": {"PUBLISH": publish}}).writeInto(operation, file)
	}
	script := &Script{operation: operation, single: newProgram(source(publishSingle)), clustered: newProgram(source(publishClustered))}
	for _, line := range signature.FindAllStringSubmatch(head, -1) {
		names := strings.Split(line[1], ", ")
		if line[3] != "" && line[3] != strconv.Itoa(len(names)) {
			panic(fmt.Sprintf("%s names %d of %s, not %s", operation, len(names), line[2], line[3]))
		}
		if line[2] == "KEYS" {
			script.keys = names
		} else {
			script.args = names
		}
	}
	return script
}

// programFor returns what this client's Redis runs.
func (c *Client) programFor(script *Script) *program {
	if c.Clustered() {
		return &script.clustered
	}
	return &script.single
}

// Part returns a Lua file: one of a script's own, or a part in lib/ that several scripts share. A part defines functions, says on its first lines
// which, and includes no other part. It panics if there is no such file: then the program is wrong.
func Part(files fs.FS, name string) string {
	text, err := fs.ReadFile(files, name+".lua")
	if err != nil {
		panic(fmt.Sprintf("the program was built without a part of its Lua: %v", err))
	}
	return string(text)
}

// Lazy returns a part that defines a function which the last of these parts defines. They run when it is called, so that a script which mostly does
// not call it makes one function instead of all of theirs.
func Lazy(function string, parts ...string) string {
	return "local function " + function + "(...)\n" + strings.Join(parts, "\n") + "\nreturn " + function + "(...)\nend\n"
}

// Clock is the part that every other part uses; see clock.lua.
//
//go:embed clock.lua
var Clock string

// Run sends the call once and returns its reply. A server that does not know the script yet (it
// was restarted, or it is the new master) says so without having run anything, so only then is it
// sent again, with its source. Any error is ErrUnavailable or ErrCorrupt.
func (c *Client) Run(ctx context.Context, call *Call) (Reply, error) { return c.run(ctx, call, "") }

// RunReplicated is Run, and also waits until Options.Replicas have what the script wrote; fewer are ErrUnavailable.
func (c *Client) RunReplicated(ctx context.Context, call *Call) (Reply, error) {
	if c.replicas == nil {
		return c.Run(ctx, call)
	}
	return c.run(ctx, call, call.values[0])
}

// Replicated reports whether RunReplicated waits for any replica.
func (c *Client) Replicated() bool { return c.replicas != nil }

// firstKeyPos is the word by which a Redis Cluster is routed.
const firstKeyPos = 3

// run waits for the replicas of a key's server, if there is a key.
func (c *Client) run(ctx context.Context, call *Call, replicatedKey string) (Reply, error) {
	script, command := call.script, call.command()
	ctx, span := c.tracer.StartScript(ctx, script.operation)
	start := time.Now()
	program := c.programFor(script)
	command[0], command[1] = "evalsha", &program.sha
	answer, err := c.send(ctx, command, replicatedKey)
	if isNoScript(err) {
		command[0], command[1] = "eval", &program.source
		answer, err = c.send(ctx, command, replicatedKey)
	}
	cause := errorCause(err)
	c.metrics.observe(script.operation, time.Since(start), cause)
	span.EndScript(cause)
	if err != nil {
		return Reply{}, failure(err)
	}
	return newReply(answer), nil
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
