package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	client "github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

const serveCommand = "serve"

// ServeCommand serves the floors or the naive service. It reads a serverSpec, and prints its address.
func ServeCommand() *cobra.Command { return fixture.Helper(serveCommand, serve) }

// serverSpec says what to serve: the naive service if there is an address of its Redis, else the floors.
type serverSpec struct {
	NaiveRedis string   `json:"naiveRedis"`
	Floors     recorded `json:"floors"`
}

// recorded are Redis commands of the API, and its responses. The floors repeat them.
type recorded struct {
	Redis        string `json:"redis"` // URL
	Create       call   `json:"create"`
	Read         call   `json:"read"`
	CreateAnswer string `json:"createAnswer"`
	ReadAnswer   string `json:"readAnswer"`
}

// call is a Redis command, and the session id in it.
type call struct {
	Words   []string `json:"words"`
	Session string   `json:"session"`
}

func serve(ctx context.Context, in io.Reader, out io.Writer) {
	var spec serverSpec
	fixture.Check(json.NewDecoder(in).Decode(&spec))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		fmt.Fprintf(w, "%s %d\n", fixture.MallocsMetric, stats.Mallocs)
	})
	if spec.NaiveRedis != "" {
		mux.Handle("/", newNaiveService(spec.NaiveRedis))
	} else {
		// So that the floors collect garbage as rarely as the API does.
		defer runtime.KeepAlive(make([]byte, 32<<20))
		addFloors(mux, spec.Floors)
	}
	listener := fixture.Must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
	server := &http.Server{Handler: mux}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Fprintln(out, listener.Addr())
	_ = server.Serve(listener) // until ctx ends
}

// The paths of the floors.
const (
	barePath   = "/bare"
	createPath = "/create"
	readPath   = "/read"
)

// addFloors adds what every request needs at least: a bare handler of net/http, and one that also calls one script through the same
// Redis client as the API's.
func addFloors(mux *http.ServeMux, r recorded) {
	const timeout = 300 * time.Millisecond // the API's default
	shared := fixture.Must(client.Open(client.Options{URL: r.Redis, Timeout: timeout}))
	callRedis := func(w http.ResponseWriter, req *http.Request, words []any, want string) bool {
		command := redis.NewCmd(req.Context(), words...)
		if shared.Process(req.Context(), command) != nil || !begins(command, want) {
			http.Error(w, "unexpected answer", http.StatusInternalServerError)
			return false
		}
		return true
	}
	mux.HandleFunc("POST "+barePath, func(w http.ResponseWriter, req *http.Request) {
		readBody(req)
		answer(w, http.StatusCreated, r.CreateAnswer)
	})
	var count atomic.Uint64
	mux.HandleFunc("POST "+createPath, func(w http.ResponseWriter, req *http.Request) {
		readBody(req) // before the call, as the API must
		if callRedis(w, req, r.Create.words(numbered(r.Create.Session, count.Add(1))), "CREATED") {
			answer(w, http.StatusCreated, r.CreateAnswer)
		}
	})
	mux.HandleFunc("GET "+readPath, func(w http.ResponseWriter, req *http.Request) {
		if callRedis(w, req, r.Read.words(r.Read.Session), "OK") {
			answer(w, http.StatusOK, r.ReadAnswer)
		}
	})
}

// words returns the command with another session id of the same length.
func (c call) words(session string) []any {
	words := make([]any, len(c.Words))
	for i, word := range c.Words {
		words[i] = word
		if at := strings.Index(word, c.Session); at >= 0 && session != c.Session {
			words[i] = word[:at] + session + word[at+len(c.Session):]
		}
	}
	return words
}

// numbered replaces the end of an id by a number.
func numbered(id string, n uint64) string {
	digits := strconv.FormatUint(n, 36)
	return id[:len(id)-len(digits)] + digits
}

func begins(command *redis.Cmd, want string) bool {
	value := command.Val()
	if many, ok := value.([]any); ok && len(many) > 0 {
		value = many[0]
	}
	word, ok := value.(string)
	return ok && strings.HasPrefix(word, want)
}

func readBody(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
