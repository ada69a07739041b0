package store

import (
	"context"
	_ "embed" // the scripts are files beside the Go code that runs them
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed prelude.lua
	preludeLua string
	//go:embed limiter.lua
	limiterLua string
	//go:embed admission.lua
	admissionLua string
	//go:embed event.lua
	eventLua string
	//go:embed expiry.lua
	expiryLua string
	//go:embed admit.lua
	admitLua string
	//go:embed create.lua
	createLua string
	//go:embed read.lua
	readLua string
	//go:embed public.lua
	publicLua string
	//go:embed transition.lua
	transitionLua string
	//go:embed cancel.lua
	cancelLua string
	//go:embed settle.lua
	settleLua string
	//go:embed sweep.lua
	sweepLua string
	//go:embed rotation.lua
	rotationLua string
	//go:embed override.lua
	overrideLua string
)

// historyLua has what most creates do not need, so that they need not make its functions.
var historyLua = "local function history()\n" + eventLua + "\n" + expiryLua + "\nreturn read_session, change_session\nend"

// The scripts, one per operation.
var (
	admitScript    = newScript("admit", preludeLua, limiterLua, admissionLua, admitLua)
	createScript   = newScript("create", preludeLua, limiterLua, admissionLua, historyLua, createLua)
	readScript     = newScript("read", preludeLua, limiterLua, admissionLua, eventLua, expiryLua, readLua)
	cancelScript   = newScript("cancel", preludeLua, limiterLua, admissionLua, eventLua, expiryLua, transitionLua, cancelLua)
	publicScript   = newScript("public_read", preludeLua, limiterLua, eventLua, expiryLua, publicLua)
	settleScript   = newScript("settle", preludeLua, eventLua, expiryLua, transitionLua, settleLua)
	sweepScript    = newScript("sweep", preludeLua, eventLua, expiryLua, sweepLua)
	rotationScript = newScript("record_rotation", preludeLua, eventLua, rotationLua)
	overrideScript = newScript("write_override", overrideLua)
)

// script is a Lua program and the digest Redis remembers it by. The operation is what metrics call it.
type script struct{ operation, source, sha string }

func newScript(operation string, parts ...string) script {
	source := strings.Join(parts, "\n")
	return script{operation: operation, source: source, sha: redis.NewScript(source).Hash()}
}

// run sends the script once and returns its answer. A server that does not know the script yet (it
// was restarted, or it is the new master) says so without having run anything, so only then is it
// sent again, with its source. Any error is ErrUnavailable or ErrCorrupt.
func (s *Store) run(ctx context.Context, program script, keys []string, args ...any) (*reply, error) {
	return s.runBy(ctx, s.link, s.timeout, program, keys, args)
}

// way is one to Redis and back.
type way interface {
	// Process sends a command and returns its error once it is answered.
	Process(ctx context.Context, command *redis.Cmd) error
}

func (s *Store) runBy(ctx context.Context, by way, timeout time.Duration, program script, keys []string, args []any) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ctx, span := s.tracer.Script(ctx, program.operation)
	start := time.Now()
	values, err := send(ctx, by, "evalsha", program.sha, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		values, err = send(ctx, by, "eval", program.source, keys, args)
	}
	cause := causeOf(err)
	s.metrics.observe(program.operation, time.Since(start), cause)
	span.Ran(cause)
	if err != nil {
		return nil, failure(err)
	}
	return &reply{rest: values}, nil
}

func send(ctx context.Context, by way, command, program string, keys []string, args []any) ([]any, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, program, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	const firstKey = 3 // the word a Redis Cluster is routed by
	cmd.SetFirstKeyPos(firstKey)
	if err := by.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Slice()
}
