package redis

import (
	"context"
	_ "embed" // clock.lua
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"
)

// Script is a Lua program and the digest Redis remembers it by.
type Script struct{ operation, source, sha string }

// NewScript returns the script that consists of the parts, one after the other. The operation is its name in metrics and spans.
func NewScript(operation string, parts ...string) *Script {
	source := "-- " + operation + "\n" + strings.Join(parts, "\n")
	return &Script{operation: operation, source: source, sha: redis.NewScript(source).Hash()}
}

// Part returns the Lua file of that name: a script, or a part of several. A part begins with what it expects and defines, includes no
// other one and never returns.
func Part(files fs.FS, name string) string {
	text, err := fs.ReadFile(files, name+".lua")
	if err != nil {
		panic(err) // the program was built without it
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

// SHA is the digest Redis remembers the script by.
func (s *Script) SHA() string { return s.sha }

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
	command[0], command[1] = "evalsha", &script.sha
	answer, err := c.send(ctx, command, replicatedKey)
	if isNoScript(err) {
		command[0], command[1] = "eval", &script.source
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
	const firstKey = 3 // the word a Redis Cluster is routed by
	cmd.SetFirstKeyPos(firstKey)
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
		sent[i] = batch.EvalSha(bounded, script.sha, keys)
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

// Clustered reports whether keys of different buckets may be on different servers.
func (c *Client) Clustered() bool {
	_, ok := c.client.(*redis.ClusterClient)
	return ok
}

// metrics of the scripts, by operation. Nil metrics count nothing.
type metrics struct {
	durations *prometheus.HistogramVec
	errors    *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	if registerer == nil {
		return nil
	}
	factory := promauto.With(registerer)
	return &metrics{
		durations: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "merchant_operator_redis_operation_duration_seconds",
			Help:    "Time until Redis had answered an operation, or failed to; the wait for a connection is part of it.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .3, 1, 5},
		}, []string{"operation"}),
		errors: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_redis_operation_errors_total",
			Help: "Operations that Redis did not answer as it should, by cause: timeout, connection, answer, replicas or cancelled.",
		}, []string{"operation", "cause"}),
	}
}

func (m *metrics) observe(operation string, took time.Duration, cause string) {
	if m == nil {
		return
	}
	m.durations.WithLabelValues(operation).Observe(took.Seconds())
	if cause != "" {
		m.errors.WithLabelValues(operation, cause).Inc()
	}
}
