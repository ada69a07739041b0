package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// patience is for what takes milliseconds on an idle machine.
const patience = 20 * time.Second

func openTo(t *testing.T, server *redistest.Server) *Client {
	t.Helper()
	opened, err := Open(Options{URL: server.URL(), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened
}

// say sends words and returns the answer as text.
func say(ctx context.Context, c *Client, words ...any) (string, error) {
	command := redis.NewCmd(ctx, words...)
	if err := c.Process(ctx, command); err != nil {
		return "", err
	}
	return fmt.Sprint(command.Val()), nil
}

// What Redis answers while a connection is set up is nobody's answer: each command is unavailable, and none is corrupt.
func TestExec_RefusedConnection(t *testing.T) {
	server := redistest.Start(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2})
	defer func() { _ = admin.Close() }()
	allow := func(rules ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "app"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	allow("on", ">old", "~*", "&*", "+@all")
	c, err := Open(Options{URL: "redis://app:old@" + server.Addr(), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	script := NewScript("answer", "local k = unpack(KEYS)\n\nreturn 'OK'", nil, nil)
	newCall := func() *Call {
		call := NewCall(script)
		call.Key("k", BucketKeyspace(0), "x")
		return &call
	}
	check := func(reply Reply, err error) {
		if err == nil && reply.Text() != "OK" || err != nil && !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %q, %v", reply.Text(), err)
		}
	}
	check(c.Run(t.Context(), newCall()))
	allow("resetpass", ">new") // connections that are open stay
	var callers sync.WaitGroup
	for range 300 {
		callers.Go(func() { check(c.Run(t.Context(), newCall())) })
	}
	callers.Wait()
	for range 30 {
		callers.Go(func() {
			replies, errs := c.runEach(t.Context(), []*Call{newCall(), newCall()})
			for i := range replies {
				check(replies[i], errs[i])
			}
		})
	}
	callers.Wait()
}

// waitFor waits until every batch is in flight and so many commands wait.
func waitFor(t *testing.T, c *Client, want int) {
	t.Helper()
	await.Until(t, patience, fmt.Sprintf("%d commands wait", want), func() bool {
		c.pipeline.mu.Lock()
		defer c.pipeline.mu.Unlock()
		count := 0
		for _, j := range c.pipeline.queue {
			if !j.left {
				count++
			}
		}
		return c.pipeline.inFlight == c.pipeline.limit && count == want
	})
}

// crowd fills the batches of a paused server, and has so many more wait. The returned function resumes the server and waits for all.
func crowd(t *testing.T, server *redistest.Server, c *Client, more int) (finish func()) {
	t.Helper()
	if _, err := say(t.Context(), c, "PING"); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	var callers sync.WaitGroup
	for i := range c.pipeline.limit + more {
		callers.Go(func() {
			want := fmt.Sprint("caller ", i)
			if got, err := say(t.Context(), c, "ECHO", want); got != want || err != nil {
				t.Errorf("%s was answered %q, %v", want, got, err)
			}
		})
	}
	waitFor(t, c, more)
	return func() {
		server.Resume()
		callers.Wait()
		checkIdle(t, c)
	}
}

// checkIdle waits until every batch has ended.
func checkIdle(t *testing.T, c *Client) {
	t.Helper()
	await.Until(t, patience, "no batch is in flight and no command waits", func() bool {
		c.pipeline.mu.Lock()
		defer c.pipeline.mu.Unlock()
		return c.pipeline.inFlight == 0 && len(c.pipeline.queue) == 0 && len(c.pipeline.batches) == 0
	})
}

func TestPipeline_OwnAnswers(t *testing.T) {
	for _, more := range []int{0, 1, 5, maxBatch - 1, maxBatch, 3*maxBatch + 7} {
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			server := redistest.Start(t)
			crowd(t, server, openTo(t, server), more)()
		})
	}
}

func TestPipeline_OneCommandFails(t *testing.T) {
	server := redistest.Start(t)
	c := openTo(t, server)
	finish := crowd(t, server, c, 10)
	var stray sync.WaitGroup
	stray.Go(func() {
		_, err := say(t.Context(), c, "EVALSHA", "0123456789012345678901234567890123456789", 0)
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Errorf("an unknown script: %v, want NOSCRIPT", err)
		}
	})
	waitFor(t, c, 11)
	finish()
	stray.Wait()
}

func TestPipeline_CallerLeaves(t *testing.T) {
	server := redistest.Start(t)
	c := openTo(t, server)
	finish := crowd(t, server, c, 3)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := say(ctx, c, "INCR", "count")
		left <- err
	}()
	waitFor(t, c, 4)
	leave()
	select {
	case err := <-left:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that left got %v", err)
		}
	case <-time.After(patience):
		t.Error("the one who left had to wait for Redis")
	}
	finish()
	if got, err := say(t.Context(), c, "EXISTS", "count"); got != "0" || err != nil {
		t.Errorf("EXISTS count: %s, %v: a command was sent that no caller waited for", got, err)
	}
}

// A caller may leave at any time, also while its batch is taken or sent; the others must get their answers nevertheless.
func TestPipeline_OtherCallersLeave(t *testing.T) {
	server := redistest.Start(t)
	c := openTo(t, server)
	const callers, callsEach = 40, 60
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for n := range callsEach {
				ctx, leave := context.WithCancel(t.Context())
				hasty := random.IntN(3) == 0
				if hasty {
					time.AfterFunc(time.Duration(random.IntN(400))*time.Microsecond, leave)
				}
				want := fmt.Sprint(i, "/", n)
				got, err := say(ctx, c, "ECHO", want)
				leave()
				if err == nil && got != want || err != nil && !hasty {
					t.Errorf("%s was answered %q, %v", want, got, err)
				}
			}
		})
	}
	calling.Wait()
	checkIdle(t, c)
}

// QUIT makes Redis close the connection, so that what was run before it may never be answered.
func TestPipeline_ConnectionEnds(t *testing.T) {
	server := redistest.Start(t)
	c := openTo(t, server)
	finish := crowd(t, server, c, 0)
	const each = 20
	var callers sync.WaitGroup
	var counted, failed atomic.Int64
	count := func() {
		if _, err := say(t.Context(), c, "INCR", "count"); err == nil {
			counted.Add(1)
		} else {
			failed.Add(1)
		}
	}
	for range each {
		callers.Go(count)
	}
	waitFor(t, c, each)
	callers.Go(func() { _, _ = say(t.Context(), c, "QUIT") })
	waitFor(t, c, each+1)
	callers.Go(count)
	waitFor(t, c, each+2)
	finish()
	callers.Wait()
	if failed.Load() == 0 {
		t.Error("the commands did not travel together, so that nothing was lost with the connection")
	}
	run, err := c.client.Get(t.Context(), "count").Int64()
	if err != nil || run > each || run < counted.Load() {
		t.Errorf("%d commands were run (%v) and %d answered, want at most each of the %d before QUIT, once", run, err, counted.Load(), each)
	}
}

func TestPipeline_ServerStops(t *testing.T) {
	server := redistest.Start(t)
	c := openTo(t, server)
	server.Stop()
	var callers sync.WaitGroup
	for range 50 {
		callers.Go(func() {
			if _, err := say(t.Context(), c, "PING"); err == nil {
				t.Error("answered by a server that is stopped")
			}
		})
	}
	callers.Wait()
	checkIdle(t, c)
	server.Start()
	// After many refused connections go-redis tries one a second, and fails at once until then.
	await.Seeing(t, patience, "the server that is back answers", func() (string, bool) {
		_, err := say(t.Context(), c, "PING")
		return fmt.Sprint(err), err == nil
	})
}

const (
	// silentTimeout is four times the default, and answeredWithin of that what callers are promised of a server that answers nothing. With
	// the default, a busy machine that lets a goroutine wait for half a second looks like a broken promise.
	silentTimeout  = 1200 * time.Millisecond
	answeredWithin = 4 * time.Second
)

// waits collects how long callers waited for an error.
type waits struct {
	waiting atomic.Int64

	mu      sync.Mutex
	longest time.Duration
	served  int
}

func (w *waits) call(t *testing.T, c *Client) {
	t.Helper()
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	start := time.Now()
	_, err := say(t.Context(), c, "PING")
	took := time.Since(start)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.longest = max(w.longest, took)
	if err == nil {
		w.served++
	}
}

// A silent server: every caller has an answer in time, however many there are and however many come meanwhile.
func TestPipeline_SilentServer(t *testing.T) {
	t.Parallel() // its callers wait most of the time
	for _, row := range []struct {
		name    string
		atOnce  int
		perTick int // every 40 ms, for 12 s
	}{
		{"1,200 callers at once", 1200, 0},
		{"25 a second", 0, 1},
		{"375 a second", 0, 15},
		{"1,200 callers, then 2,500 a second", 1200, 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			c, err := Open(Options{URL: server.URL(), Timeout: silentTimeout})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			await.Until(t, patience, "the server answers", func() bool {
				_, err := say(t.Context(), c, "PING")
				return err == nil
			})
			server.Pause()
			var callers sync.WaitGroup
			var w waits
			for range row.atOnce {
				callers.Go(func() { w.call(t, c) })
			}
			if row.perTick > 0 {
				tick := time.NewTicker(40 * time.Millisecond)
				defer tick.Stop()
				for range 300 {
					<-tick.C
					for range row.perTick {
						callers.Go(func() { w.call(t, c) })
					}
				}
			}
			most := w.waiting.Load()
			callers.Wait()
			server.Resume()
			t.Logf("longest wait %s, %d callers waited at the end", w.longest, most)
			if most > int64(row.atOnce)+1000 {
				t.Errorf("%d callers wait after 12 s: those who cannot be served in time are rejected at once", most)
			}
			if w.longest > answeredWithin || w.served > 0 {
				t.Errorf("the longest wait was %s, want at most %s; %d were served by a silent server", w.longest, answeredWithin, w.served)
			}
			await.Until(t, patience, "the server is used again", func() bool {
				_, err := say(t.Context(), c, "PING")
				return err == nil
			})
			checkIdle(t, c)
		})
	}
}

// A command joins the queue while its own round may end in time: after as many rounds as are before it, each as long as the middle one of
// the last three.
func TestPipeline_ServesInTime(t *testing.T) {
	const limit, round, timeout = 2, 2 * maxBatch, 300 * time.Millisecond
	for _, row := range []struct {
		name    string
		rounds  [3]int // in ms
		waiting int
		left    int // beside them, callers who have gone
		want    bool
	}{
		{"nothing is known yet", [3]int{}, 1000 * round, 0, true},
		{"the last place in time", [3]int{1, 1, 1}, 300*round - 1, 0, true},
		{"one too many", [3]int{1, 1, 1}, 300 * round, 0, false},
		{"one slow round and a full queue", [3]int{1, 1, 200}, 300*round - 1, 0, true},
		{"one slow round before", [3]int{200, 1, 1}, 300*round - 1, 0, true},
		{"two slow rounds, the last place in time", [3]int{100, 1, 100}, 3*round - 1, 0, true},
		{"two slow rounds, one too many", [3]int{1, 100, 100}, 3 * round, 0, false},
		{"callers who left are not sent", [3]int{100, 100, 100}, 3*round - 1, 1000 * round, true},
		{"a server as slow as the timeout", [3]int{300, 300, 300}, round - 1, 0, true},
		{"a silent server", [3]int{301, 301, 301}, 0, 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := newPipeline(nil, timeout, limit)
			for i, ms := range row.rounds {
				p.rounds[i] = time.Duration(ms) * time.Millisecond
			}
			p.queue, p.left = make([]*job, row.waiting+row.left), row.left
			if got := p.servesInTime(); got != row.want {
				t.Errorf("a command that joins %d others is served in time: %t, want %t", row.waiting, got, row.want)
			}
		})
	}
}

// fleet is callers of one pipeline, and what became of them.
type fleet struct {
	calling          sync.WaitGroup
	served, rejected atomic.Int64
	longest          atomic.Int64 // wait, in ns
}

// call counts a key up. An error other than errQueue fails the test: a command that is sent is served.
func (f *fleet) call(t *testing.T, p *pipeline) {
	t.Helper()
	f.calling.Go(func() {
		start := time.Now()
		switch err := p.process(context.Background(), redis.NewCmd(context.Background(), "INCR", "count")); {
		case err == nil:
			f.served.Add(1)
		case errors.Is(err, errQueue):
			f.rejected.Add(1)
		default:
			t.Errorf("a command was sent and not served: %v", err)
		}
		for took := int64(time.Since(start)); ; {
			if longest := f.longest.Load(); took <= longest || f.longest.CompareAndSwap(longest, took) {
				return
			}
		}
	})
}

// warmUp runs as many rounds as the pace is of.
func warmUp(t *testing.T, p *pipeline) {
	t.Helper()
	for range p.rounds {
		if err := p.process(t.Context(), redis.NewCmd(t.Context(), "PING")); err != nil {
			t.Fatal(err)
		}
	}
}

// One stall, however many wait for its end: they are served, and so are those who come right after it.
func TestPipeline_OneSlowRound(t *testing.T) {
	const timeout, stall = 9 * time.Second, 3 * time.Second
	server := redistest.Start(t)
	p := newPipeline(openTo(t, server).client, timeout, 1)
	warmUp(t, p)
	server.Pause()
	start := time.Now()
	var f fleet
	const each = 10 * maxBatch
	for range each {
		f.call(t, p)
	}
	await.Until(t, patience, "the stall is long", func() bool { return time.Since(start) > stall })
	for range each {
		f.call(t, p)
	}
	server.Resume()
	await.Until(t, patience, "the slow round has ended", func() bool { return f.served.Load() > 0 })
	for range each {
		f.call(t, p)
	}
	f.calling.Wait()
	if served := f.served.Load(); served != 3*each {
		t.Errorf("%d of %d were served, and the others rejected, although there was time", served, 3*each)
	}
}

// slowWire opens a pipeline of one batch to a server whose every answer takes that long to arrive.
func slowWire(t *testing.T, delay, timeout time.Duration) (*pipeline, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t)
	wire := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "wire", "127.0.0.1:0", server.Addr())
	if err := wire.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wire.Stop)
	toxic := fmt.Sprintf(`{"type": "latency", "stream": "downstream", "attributes": {"latency": %d}}`, delay.Milliseconds())
	if _, err := wire.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		t.Fatal(err)
	}
	c, err := Open(Options{URL: "redis://" + wire.Listen, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p := newPipeline(c.client, timeout, 1)
	warmUp(t, p)
	return p, server
}

// slowDelay is so long that what a busy machine adds to three rounds is short beside the rest of slowTimeout.
const slowDelay, slowTimeout = 2 * time.Second, 7200 * time.Millisecond

// A server that takes two seconds for each round serves two rounds of a crowd within 7.2 s, beside the command it has: 128 of 1,000. All
// others are rejected in time, and none of them was run.
func TestPipeline_SlowServer(t *testing.T) {
	t.Parallel() // it waits most of the time
	const delay, timeout, callers, inTime = slowDelay, slowTimeout, 1000, 1 + 2*maxBatch
	p, server := slowWire(t, delay, timeout)
	var f fleet
	for range callers {
		f.call(t, p)
	}
	f.calling.Wait()
	if served, rejected := f.served.Load(), f.rejected.Load(); served != inTime || rejected != callers-inTime {
		t.Errorf("%d were served and %d rejected, want %d of %d served", served, rejected, inTime, callers)
	}
	if longest := time.Duration(f.longest.Load()); longest > timeout+delay/2 {
		t.Errorf("the longest wait was %s, want at most %s", longest, timeout)
	}
	direct := openTo(t, server)
	if count, err := say(t.Context(), direct, "GET", "count"); err != nil || count != fmt.Sprint(inTime) {
		t.Errorf("%s commands were run, %v; want those that were served", count, err)
	}
}

// A caller that has left delays no other, so it must not cause a rejection either.
func TestPipeline_CrowdLeaves(t *testing.T) {
	t.Parallel() // it waits most of the time
	const crowd = 10 * maxBatch
	p, _ := slowWire(t, slowDelay, slowTimeout)
	var f fleet
	f.call(t, p)
	await.Until(t, patience, "the batch is in progress", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.inFlight == 1
	})
	ctx, leave := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	for range crowd {
		calling.Go(func() { _ = p.process(ctx, redis.NewCmd(ctx, "PING")) })
	}
	await.Until(t, patience, "the queue is full", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.servesInTime()
	})
	leave()
	calling.Wait()
	for range maxBatch {
		f.call(t, p)
	}
	f.calling.Wait()
	if served := f.served.Load(); served != 1+maxBatch {
		t.Errorf("%d of %d callers were served after a crowd had left", served, 1+maxBatch)
	}
}

// BenchmarkPipeline is what a command costs its caller beside so many others, by this package's pipeline and by the one that go-redis has, which
// docs/design/redis.md compares.
func BenchmarkPipeline(b *testing.B) {
	const body = "redis.call('SET', KEYS[1], ARGV[1], 'PX', 60000) return redis.call('GET', KEYS[1])"
	key := BucketKeyspace(0).Key("bench")
	ways := map[string]func(b *testing.B, url string) func(context.Context) error{
		"ours": func(b *testing.B, url string) func(context.Context) error {
			b.Helper()
			c, err := Open(Options{URL: url, Timeout: patience})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = c.Close() })
			script := NewScript("bench", "local key = unpack(KEYS)\nlocal value = unpack(ARGV)\n\nredis.call('SET', key, value, 'PX', 60000) return redis.call('GET', key)", nil, nil)
			return func(ctx context.Context) error {
				call := NewCall(script)
				call.Key("key", BucketKeyspace(0), "bench")
				call.Text("value", "value")
				_, err := c.Run(ctx, &call)
				return err
			}
		},
		"go-redis": func(b *testing.B, url string) func(context.Context) error {
			b.Helper()
			options, err := redis.ParseURL(url)
			if err != nil {
				b.Fatal(err)
			}
			c := redis.NewClient(options)
			b.Cleanup(func() { _ = c.Close() })
			sha, err := c.ScriptLoad(b.Context(), body).Result()
			if err != nil {
				b.Fatal(err)
			}
			pipelined, err := c.AutoPipeline()
			if err != nil {
				b.Fatal(err)
			}
			return func(ctx context.Context) error { return pipelined.EvalSha(ctx, sha, []string{key}, "value").Err() }
		},
	}
	for _, callers := range []int{1, 16, 64, 256} {
		for _, way := range slices.Sorted(maps.Keys(ways)) {
			b.Run(fmt.Sprintf("callers=%d/%s", callers, way), func(b *testing.B) {
				run := ways[way](b, redistest.Start(b).URL())
				b.ReportAllocs()
				var calling sync.WaitGroup
				var n atomic.Int64
				b.ResetTimer()
				for range callers {
					calling.Go(func() {
						for n.Add(1) <= int64(b.N) {
							if err := run(b.Context()); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				calling.Wait()
			})
		}
	}
}
