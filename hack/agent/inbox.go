package main

import (
	"io"
	"net/http"
	"sync"
)

// hook is a webhook as it came.
type hook struct {
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// inbox keeps every webhook that came. The zero inbox is empty.
type inbox struct {
	mu    sync.Mutex
	hooks []hook
}

func (i *inbox) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	headers := map[string]string{}
	for name := range r.Header {
		headers[name] = r.Header.Get(name)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.hooks = append(i.hooks, hook{Headers: headers, Body: string(body)})
}

func (i *inbox) list(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	reply(w, append([]hook{}, i.hooks...)) // never null
}
