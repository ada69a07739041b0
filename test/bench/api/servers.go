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

	"github.com/merchant-operator/merchant-operator/internal/store/link"
	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
)

const serveCommand = "serve"

// ServeCommand is what this benchmark starts for the floors and the naive service. It reads an order, and writes its address.
func ServeCommand() *cobra.Command {
	return &cobra.Command{
		Use: serveCommand, Short: "Serve the floors or the naive service, for bench api", Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fixture.Try(func() { serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()) })
		},
	}
}

// order is what to serve: the naive service with Redis at an address, or else the floors.
type order struct {
	Naive string `json:"naive"`
	Plan  plan   `json:"plan"`
}

// plan is what the floors do: calls of Redis that were recorded from the product, and its answers.
type plan struct {
	Redis        string `json:"redis"` // URL
	Create       call   `json:"create"`
	Read         call   `json:"read"`
	CreateAnswer string `json:"createAnswer"`
	ReadAnswer   string `json:"readAnswer"`
}

// call is a command as it was sent to Redis, and the session id in it.
type call struct {
	Words   []string `json:"words"`
	Session string   `json:"session"`
}

func serve(ctx context.Context, in io.Reader, out io.Writer) {
	var what order
	fixture.Check(json.NewDecoder(in).Decode(&what))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		fmt.Fprintf(w, "%s %d\n", fixture.MallocsMetric, stats.Mallocs)
	})
	if what.Naive != "" {
		mux.Handle("/", newNaiveService(what.Naive))
	} else {
		// The floors collect garbage as seldom as the product does. It is a setting, and no work that the product saves.
		defer runtime.KeepAlive(make([]byte, 32<<20))
		addFloors(mux, what.Plan)
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

// addFloors adds what a request cannot do without: a bare handler of net/http, and the same with one call of a script over the product's
// own link. How far the product is above them is what it costs.
func addFloors(mux *http.ServeMux, p plan) {
	const timeout = 300 * time.Millisecond // the product's default
	redisLink := fixture.Must(link.Open(link.Options{URL: p.Redis, Timeout: timeout}))
	callRedis := func(w http.ResponseWriter, r *http.Request, words []any, want string) bool {
		command := redis.NewCmd(r.Context(), words...)
		if redisLink.Process(r.Context(), command) != nil || !begins(command, want) {
			http.Error(w, "unexpected answer", http.StatusInternalServerError)
			return false
		}
		return true
	}
	mux.HandleFunc("POST "+barePath, func(w http.ResponseWriter, r *http.Request) {
		readBody(r)
		answer(w, http.StatusCreated, p.CreateAnswer)
	})
	var count atomic.Uint64
	mux.HandleFunc("POST "+createPath, func(w http.ResponseWriter, r *http.Request) {
		readBody(r) // before the call, for nobody can create what he has not read
		if callRedis(w, r, p.Create.words(numbered(p.Create.Session, count.Add(1))), "CREATED") {
			answer(w, http.StatusCreated, p.CreateAnswer)
		}
	})
	mux.HandleFunc("GET "+readPath, func(w http.ResponseWriter, r *http.Request) {
		if callRedis(w, r, p.Read.words(p.Read.Session), "OK") {
			answer(w, http.StatusOK, p.ReadAnswer)
		}
	})
}

// words are those of the call with another session id of the same length.
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

// numbered puts a number in place of an id's end.
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
