package floor

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/apiserver/store/link"
)

// The paths of the floors.
const (
	BarePath   = "/bare"
	CreatePath = "/create"
	ReadPath   = "/read"
)

// Handler serves the floors.
func Handler(plan Plan) (http.Handler, error) {
	opened, err := link.Open(link.Options{URL: plan.Redis, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	f := &floors{link: opened, plan: plan}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+BarePath, func(w http.ResponseWriter, r *http.Request) {
		readBody(r)
		answer(w, http.StatusCreated, plan.CreateAnswer)
	})
	mux.HandleFunc("POST "+CreatePath, f.create)
	mux.HandleFunc("GET "+ReadPath, f.read)
	return mux, nil
}

type floors struct {
	link  *link.Link
	plan  Plan
	count atomic.Uint64
}

func (f *floors) create(w http.ResponseWriter, r *http.Request) {
	readBody(r) // before the call, for nobody can create what he has not read
	if f.call(w, r, f.plan.Create.anew(f.count.Add(1)), "CREATED") {
		answer(w, http.StatusCreated, f.plan.CreateAnswer)
	}
}

func (f *floors) read(w http.ResponseWriter, r *http.Request) {
	if f.call(w, r, f.plan.Read.again(), "OK") {
		answer(w, http.StatusOK, f.plan.ReadAnswer)
	}
}

// timeout is the product's default.
const timeout = 300 * time.Millisecond

// call makes a call as the product does, over the same link.
func (f *floors) call(w http.ResponseWriter, r *http.Request, words []any, want string) bool {
	command := redis.NewCmd(r.Context(), words...)
	if f.link.Process(r.Context(), command) != nil || !begins(command, want) {
		http.Error(w, "unexpected answer", http.StatusInternalServerError)
		return false
	}
	return true
}

func begins(command *redis.Cmd, want string) bool {
	said := command.Val()
	if many, ok := said.([]any); ok && len(many) > 0 {
		said = many[0]
	}
	word, ok := said.(string)
	return ok && strings.HasPrefix(word, want)
}

func readBody(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
