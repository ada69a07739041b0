package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// exchange is a request to make, and what was answered.
type exchange struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}

type answer struct {
	// Error says why there is no answer; empty when there is one.
	Error   string            `json:"error,omitempty"`
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}

// do makes one request on a connection of its own, and answers with what was answered.
func do(w http.ResponseWriter, r *http.Request) {
	var wanted exchange
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	reply(w, send(r, client, wanted))
}

func send(r *http.Request, client *http.Client, wanted exchange) answer {
	request, err := http.NewRequestWithContext(r.Context(), wanted.Method, wanted.URL, strings.NewReader(wanted.Body))
	if err != nil {
		return answer{Error: err.Error()}
	}
	for name, value := range wanted.Headers {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{Error: err.Error()}
	}
	headers := map[string]string{}
	for name := range response.Header {
		headers[name] = response.Header.Get(name)
	}
	return answer{Status: response.StatusCode, Headers: headers, Body: string(body)}
}

func reply(w http.ResponseWriter, value any) {
	content, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(content) // to whoever is still there
}

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
