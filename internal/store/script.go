package store

import (
	"context"
	"embed"
	"io/fs"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The scripts are files beside the Go code that runs them, one per operation, and the parts they include.
//
//go:embed *.lua
var lua embed.FS

var (
	admitScript         = newScript("admit", "admit")
	createScript        = newScript("create", "create")
	originalScript      = newScript("read_original", "original")
	readScript          = newScript("read", "read")
	cancelScript        = newScript("cancel", "cancel")
	publicScript        = newScript("public_read", "public")
	settleScript        = newScript("settle", "settle")
	rotationScript      = newScript("record_rotation", "rotation")
	overrideScript      = newScript("write_override", "override")
	overridesScript     = newScript("read_overrides", "overrides")
	admitRotationScript = newScript("admit_rotation", "admit_rotation")
)

// script is a Lua program and the digest Redis remembers it by. The operation is what metrics call it.
type script struct{ operation, source, sha string }

func newScript(operation, file string) *script {
	source := part(file)
	return &script{operation: operation, source: source, sha: redis.NewScript(source).Hash()}
}

// part returns a file with those it includes, each in place of a line "-- include: <its name>". What is included in the midst of
// a block costs a request nothing that does not come there: no function of it is made.
func part(file string) string {
	text, err := fs.ReadFile(lua, file+".lua")
	if err != nil {
		panic(err) // the program was built without it
	}
	var whole strings.Builder
	for line := range strings.Lines(string(text)) {
		if included, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include: "); ok {
			whole.WriteString(part(included))
			continue
		}
		whole.WriteString(line)
	}
	return whole.String()
}

// run sends the script once and returns its answer. A server that does not know the script yet (it
// was restarted, or it is the new master) says so without having run anything, so only then is it
// sent again, with its source. Any error is ErrUnavailable or ErrCorrupt.
func (s *Store) run(ctx context.Context, program *script, keys []string, args ...any) (*reply, error) {
	return s.runBy(ctx, s.link, program, commandOf(keys, args))
}

// commandOf leaves room for the first two words.
func commandOf(keys []string, args []any) []any {
	call := make([]any, 3, 3+len(keys)+len(args))
	call[2] = len(keys)
	for _, key := range keys {
		call = append(call, key)
	}
	return append(call, args...)
}

// runWords is run for what each request needs: it allocates less.
func (s *Store) runWords(ctx context.Context, program *script, w *words) (*reply, error) {
	return s.runBy(ctx, s.link, program, w.command())
}

// way is one to Redis and back.
type way interface {
	// Process sends a command and returns its error once it is answered, or has taken too long.
	Process(ctx context.Context, command *redis.Cmd) error
}

// runBy fills in the first two words of the command.
func (s *Store) runBy(ctx context.Context, by way, program *script, command []any) (*reply, error) {
	ctx, span := s.tracer.StartScript(ctx, program.operation)
	start := time.Now()
	command[0], command[1] = "evalsha", &program.sha
	answer, err := send(ctx, by, command)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		command[0], command[1] = "eval", &program.source
		answer, err = send(ctx, by, command)
	}
	cause := causeOf(err)
	s.metrics.observe(program.operation, time.Since(start), cause)
	span.EndScript(cause)
	if err != nil {
		return nil, failure(err)
	}
	return replyOf(answer), nil
}

func send(ctx context.Context, by way, command []any) (any, error) {
	cmd := redis.NewCmd(ctx, command...)
	const firstKey = 3 // the word a Redis Cluster is routed by
	cmd.SetFirstKeyPos(firstKey)
	if err := by.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}
