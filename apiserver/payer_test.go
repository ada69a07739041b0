package apiserver_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver"
	fixturetest "github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

const public = "/api/v1/public/sessions"

// stream opens a stream of a session, or gets another answer.
func (r *replica) stream(id string, headers ...string) *roomtest.Stream {
	r.t.Helper()
	return roomtest.OpenStream(r.t, r.url+public+"/"+id, headers...)
}

// keyOn publishes a merchant whose sessions are on one primary of a Redis Cluster, and a key of it.
func (f *fixture) keyOn(servers []*redistest.Server, primary int) string {
	f.t.Helper()
	inspect := storetest.Inspect(f.t, servers[0])
	for i := 0; ; i++ {
		name := fmt.Sprintf("shop-%d", i)
		bucket := storetest.Tag(published.ID(types.UID(f.namespace + "/" + name)))
		if slot := int(inspect.ClusterKeySlot(f.t.Context(), bucket).Val()); slot*len(servers)/storetest.Slots == primary {
			return f.key(name+"-till", f.merchant(name))
		}
	}
}

// A primary of a Redis Cluster is frozen under a crowd of its payers: those whose sessions are on
// another one are served meanwhile.
func TestPublicSession_SilentPrimary(t *testing.T) {
	t.Parallel()
	servers := storetest.StartCluster(t)
	f := newFixture(t)
	keys := []string{f.keyOn(servers, 0), f.keyOn(servers, 1)}
	r := f.start(func(o *apiserver.Options) {
		o.RedisURL, o.RedisTimeout = "redis+cluster://"+servers[0].Addr(), 10*time.Second
	})
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = r.call(http.MethodPost, sessions, key, charge1250).want(t, http.StatusCreated).text("sessionId")
		r.call(http.MethodGet, public+"/"+ids[i], "", "").want(t, http.StatusOK)
	}
	servers[0].Pause()
	t.Cleanup(servers[0].Resume)
	// Payers wait for 5 s at most, so those who are to be served are few: a busy machine serves
	// them in time. The others are more than have a place in all queues together.
	const served, refused = 20, 100
	type crowd struct {
		asking         sync.WaitGroup
		sent, answered atomic.Int64
	}
	ask := func(c *crowd, payers int, id string, want int) {
		trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { c.sent.Add(1) }}
		for range payers {
			c.asking.Go(func() {
				request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, r.url+public+"/"+id, http.NoBody)
				if err != nil {
					t.Error(err)
				} else if r.send(request).status == want {
					c.answered.Add(1)
				}
			})
		}
	}
	var frozen, healthy crowd
	ask(&frozen, refused, ids[0], http.StatusServiceUnavailable)
	eventually(t, "the payers of the frozen primary have asked", func() bool { return frozen.sent.Load() == refused })
	ask(&healthy, served, ids[1], http.StatusOK)
	healthy.asking.Wait()
	frozen.asking.Wait()
	if healthy.answered.Load() != served || frozen.answered.Load() != refused {
		t.Errorf("%d of %d payers of a healthy primary were served, and %d of %d of the frozen one refused",
			healthy.answered.Load(), served, frozen.answered.Load(), refused)
	}
}

// A client that waits and never sends its body does not keep its connection.
func TestLongPoll_BodyNeverComes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) { o.Streams.WriteTimeout = 100 * time.Millisecond })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	for name, path := range map[string]string{"of a payer": public + "/" + id, "of a merchant": events} {
		t.Run(name, func(t *testing.T) {
			connection, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = connection.Close() }()
			_ = connection.SetReadDeadline(time.Now().Add(patience))
			if _, err := fmt.Fprintf(connection, "GET %s?wait=1 HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n", path, key); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(connection); err != nil {
				t.Errorf("the connection is still open, with the answer %q: %v", answer, err)
			}
		})
	}
}

// EventSource would come back at once from all clients of a replica that goes.
func TestStream_Drain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	r := f.start(func(o *apiserver.Options) { o.Streams.Drain = time.Second })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	open := []*roomtest.Stream{r.stream(id), r.stream(id), r.stream(id)}
	for _, s := range open {
		s.WantStatus("PENDING")
	}
	answered := make(chan result, 1)
	go func() { answered <- r.call(http.MethodGet, public+"/"+id+"?wait=25", "", "") }()
	eventually(t, "four wait", func() bool { return r.metric("merchant_operator_streams") == "4" })
	r.cancel()
	for _, s := range open {
		s.WantEnd()
	}
	if got := <-answered; got.text("status") != "PENDING" {
		t.Errorf("a long poll gets %d %s", got.status, got.raw)
	}
	if err := r.wantEnd(t); err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestStream_Limits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	victims := f.key("victims-till", f.merchant("victim", func(m *published.MerchantRecord) { m.Namespace = "another" }))
	r := f.start(trustLoopback, func(o *apiserver.Options) { // a namespace has three of six streams
		o.Streams.Max, o.Streams.MaxPerAddress, o.MaxConnections, o.Streams.Drain = 6, 2, 2, 0
	})
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	refused := func(address, message string) {
		t.Helper()
		for _, ask := range [][]string{{"", "Accept", "text/event-stream"}, {"?wait=5"}} {
			got := r.call(http.MethodGet, public+"/"+id+ask[0], "", "", append(ask[1:], "X-Forwarded-For", address)...)
			got.wantError(t, http.StatusServiceUnavailable, message)
			if got.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
	}
	first := r.stream(id, "X-Forwarded-For", "203.0.113.7")
	first.WantStatus("PENDING")
	r.stream(id, "X-Forwarded-For", "203.0.113.7").WantStatus("PENDING")
	refused("203.0.113.7", "too many open streams of your address; close some, or poll")
	r.stream(id, "X-Forwarded-For", "203.0.113.8").WantStatus("PENDING")
	refused("203.0.113.9", "too many open streams; poll, or retry after the time in Retry-After")

	other := r.stream(r.call(http.MethodPost, sessions, victims, charge1250).text("sessionId"), "X-Forwarded-For", "203.0.113.9")
	if event, open := other.Next(); !open || event.ID != "PENDING" {
		t.Errorf("the stream of another namespace's session: %+v", event)
	}
	_ = other.Body.Close()
	eventually(t, "the stream has ended", func() bool { return r.metric("merchant_operator_streams") == "3" })

	// Three streams take none of the two connections, and polling goes on.
	for range 3 {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
		r.call(http.MethodGet, public+"/"+id, "", "", "X-Forwarded-For", "203.0.113.9").want(t, http.StatusOK)
	}
	r.call(http.MethodGet, public+"/"+otherID(id)+"?wait=5", "", "", "X-Forwarded-For", "203.0.113.9").want(t, http.StatusServiceUnavailable)
	_ = first.Body.Close()
	eventually(t, "there is room again", func() bool { return r.metric("merchant_operator_streams") == "2" })
	r.call(http.MethodGet, public+"/"+otherID(id)+"?wait=5", "", "", "X-Forwarded-For", "203.0.113.7").want(t, http.StatusNotFound)
	r.stream(id, "X-Forwarded-For", "203.0.113.7").WantStatus("PENDING")
	for limit, want := range map[string]string{"namespace": "3", "address": "2"} {
		if got := r.metric(`merchant_operator_streams_refused_total{limit="` + limit + `"}`); got != want {
			t.Errorf("%s refused by the limit of the %s, want %s", got, limit, want)
		}
	}
	// What one client does must not look like a failure of the service.
	if got := r.metric(`merchant_operator_http_request_duration_seconds_count{method="GET",route="/api/v1/public/sessions/{id}",status="503"}`); got != "" {
		t.Errorf("%s responses are counted as errors", got)
	}
}

// otherID is an id in the same bucket that nobody has.
func otherID(id string) string { return id[:len(id)-18] + strings.Repeat("0", 18) }

// restrictedURL lets a user of Redis do all but what the rule takes away.
func restrictedURL(t *testing.T, server *redistest.Server, rule string) string {
	t.Helper()
	c := storetest.Inspect(t, server)
	if err := c.Do(t.Context(), "ACL", "SETUSER", "restricted", "on", ">secret", "~{b*", "+@all", "allchannels", rule).Err(); err != nil {
		t.Fatal(err)
	}
	return "redis://restricted:secret@" + server.Addr()
}

// Without messages the state is right after the interval, and a session still ends.
func TestStream_LostMessages(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start(func(o *apiserver.Options) { o.RedisURL, o.Streams.Reread = server.URL(), time.Second })
	mute := f.start(func(o *apiserver.Options) { o.RedisURL = restrictedURL(t, server, "resetchannels") })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	s := r.stream(id)
	s.WantStatus("PENDING")
	mute.report(id, rail, paid(1250)).want(t, http.StatusOK)
	s.WantStatus("COMPLETED")
	s.WantEnd()
	if got := r.metric(`merchant_operator_stream_changes_total{source="reread"}`); got != "1" {
		t.Errorf("%s changes were found by a reread", got)
	}
	// The mute replica cannot subscribe either. It says so, and its own streams are late.
	id = r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	mute.stream(id).WantStatus("PENDING")
	eventually(t, "the lost subscription is reported", func() bool {
		return mute.metric(`merchant_operator_redis_subscriptions_lost_total`) != "0" &&
			mute.metric(`merchant_operator_redis_subscriptions{state="wanted"}`) == "1" &&
			mute.metric(`merchant_operator_redis_subscriptions{state="active"}`) == "0"
	})
	eventually(t, "it is logged", func() bool { // after it is counted
		logged := mute.log.String()
		return strings.Contains(logged, "lost the subscription to the ends of sessions") && strings.Contains(logged, "NOPERM")
	})
}

// The wire between a replica and Redis is cut while a session ends. Only the new subscription makes the replica look.
func TestStream_LostSubscription(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var listen string
	if err := fixturetest.Choose(&listen); err != nil {
		t.Fatal(err)
	}
	wire := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "wire", listen, server.Addr())
	if err := wire.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(wire.Stop)
	f := newFixture(t)
	key, rail := f.key("till", f.merchant("acme")), f.rail("bank")
	r := f.start(func(o *apiserver.Options) { o.RedisURL, o.Streams.Reread = "redis://"+listen, time.Hour })
	other := f.start(func(o *apiserver.Options) { o.RedisURL = server.URL() })
	id := r.call(http.MethodPost, sessions, key, charge1250).text("sessionId")
	s := r.stream(id)
	s.WantStatus("PENDING")
	const active = `merchant_operator_redis_subscriptions{state="active"}`
	eventually(t, "it is subscribed", func() bool { return r.metric(active) == "1" })
	wire.Stop()
	eventually(t, "the loss is noticed", func() bool { return r.metric(active) == "0" })
	other.report(id, rail, paid(1250)).want(t, http.StatusOK)
	if err := wire.Start(); err != nil {
		t.Fatal(err)
	}
	s.WantStatus("COMPLETED")
	s.WantEnd()
}
