package inbox

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Attempt is one request as a Recorder got it.
type Attempt struct {
	Event

	Header http.Header
	Status int // of the answer; 0 while there is none, and if the connection was cut off
	// Invalid is why the secret of the Recorder does not verify the request; nil if it has none.
	Invalid error
}

// SessionID is of the session that the event is about; empty: it is about none.
func (a Attempt) SessionID() string { return a.session }

// Recorder is an HTTP handler for tests: it records every request, and responds with the status that a function returns.
type Recorder struct {
	answer func(before int, r *http.Request) (status int)

	mu       sync.Mutex
	secret   string
	attempts []Attempt
}

// NewRecorder answers with the status that answer returns for a request and the number of those before; 0 cuts the connection off.
// nil: always 200.
func NewRecorder(answer func(before int, r *http.Request) (status int)) *Recorder {
	if answer == nil {
		answer = func(int, *http.Request) int { return http.StatusOK }
	}
	return &Recorder{answer: answer}
}

// VerifyWith lets requests be verified from now on.
func (r *Recorder) VerifyWith(secret string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secret = secret
}

// ServeHTTP records the request and answers it.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	n := r.record(body, request.Header.Clone())
	status := r.answer(n, request)
	r.mu.Lock()
	r.attempts[n].Status = status
	r.mu.Unlock()
	if status == 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
}

// record returns the number of requests before.
func (r *Recorder) record(body []byte, header http.Header) (before int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempt := Attempt{Header: header}
	var err error
	attempt.Event, err = parse(header.Get(standardwebhooks.HeaderWebhookID), body, false)
	if err == nil && r.secret != "" {
		err = Verify(r.secret, body, header)
	}
	attempt.Verified, attempt.Invalid = err == nil && r.secret != "", err
	r.attempts = append(r.attempts, attempt)
	return len(r.attempts) - 1
}

// Attempts are all requests so far.
func (r *Recorder) Attempts() []Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.attempts)
}

// About are the requests about one session, or key.
func (r *Recorder) About(id string) []Attempt {
	return slices.DeleteFunc(r.Attempts(), func(a Attempt) bool { return a.session != id && a.key != id })
}

// Types are those of the events about one session, or key: each event once, in the order of their first arrival.
func (r *Recorder) Types(id string) []string {
	var types []string
	seen := map[string]bool{}
	for _, attempt := range r.About(id) {
		if !seen[attempt.ID] {
			seen[attempt.ID] = true
			types = append(types, attempt.Type)
		}
	}
	return types
}

// Verify checks a request as a merchant's server would.
func Verify(secret string, body []byte, header http.Header) error {
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return errors.New("the secret is not of the form whsec_<base64>")
	}
	return verifier.Verify(body, header)
}
