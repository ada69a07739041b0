package floor

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The paths of the floors.
const (
	BarePath   = "/bare"
	CreatePath = "/create"
	ReadPath   = "/read"
)

// Handler serves the floors.
func Handler(plan Plan) (http.Handler, error) {
	client, err := newClient(plan.Redis)
	if err != nil {
		return nil, err
	}
	f := &floors{client: client, plan: plan}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+BarePath, func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, http.StatusCreated, plan.CreateAnswer)
	})
	mux.HandleFunc("POST "+CreatePath, f.create)
	mux.HandleFunc("GET "+ReadPath, f.read)
	return mux, nil
}

type floors struct {
	client *redis.Client
	plan   Plan
	count  atomic.Uint64
}

func (f *floors) create(w http.ResponseWriter, r *http.Request) {
	if f.call(w, r, f.plan.Create.anew(f.count.Add(1)), "CREATED") {
		answer(w, r, http.StatusCreated, f.plan.CreateAnswer)
	}
}

func (f *floors) read(w http.ResponseWriter, r *http.Request) {
	if f.call(w, r, f.plan.Read.again(), "OK") {
		answer(w, r, http.StatusOK, f.plan.ReadAnswer)
	}
}

// call makes a call as the product does, with a time it must be done by.
func (f *floors) call(w http.ResponseWriter, r *http.Request, words []any, want string) bool {
	ctx, cancel := context.WithTimeout(r.Context(), 300*time.Millisecond)
	defer cancel()
	said, err := f.client.Do(ctx, words...).Slice()
	if err != nil || len(said) == 0 || said[0] != want {
		http.Error(w, "unexpected answer", http.StatusInternalServerError)
		return false
	}
	return true
}

func answer(w http.ResponseWriter, r *http.Request, status int, body string) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
