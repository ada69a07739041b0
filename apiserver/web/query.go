package web

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// ReadQuery reads the parameters of a request with a key. One that the route does not know, or that is given twice, is a RequestError: else a
// misspelt parameter would silently ask for something else.
func ReadQuery(r *http.Request, known ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, RequestError("the query is malformed: write each parameter as name=value, percent-encoded")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(known, name):
			return nil, RequestError("unknown parameter " + Quoted(name))
		case len(values[name]) > 1:
			return nil, RequestError(name + " must be given at most once")
		}
	}
	return values, nil
}

// ParseInteger reads an integer of a query, from least to most. Each has one spelling only.
func ParseInteger(text string, least, most int64) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= least && n <= most && strconv.FormatInt(n, 10) == text
}

// WaitParameter is how many seconds the response may wait for something to happen.
const WaitParameter = "wait"

const maxWaitSeconds = 25 // less than most proxies wait for a response

// ParseWait reads WaitParameter. 0, as without it: respond at once.
func ParseWait(values url.Values) (time.Duration, error) {
	given := values[WaitParameter]
	if len(given) == 0 {
		return 0, nil
	}
	seconds, ok := ParseInteger(given[0], 0, maxWaitSeconds)
	if !ok || len(given) > 1 {
		return 0, RequestError(fmt.Sprintf("%s must be an integer from 0 to %d, in seconds", WaitParameter, maxWaitSeconds))
	}
	return time.Duration(seconds) * time.Second, nil
}
