package delivery

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter is the longest wait an endpoint may ask for.
const MaxRetryAfter = 24 * time.Hour

// retryAfter reads the header (RFC 9110, section 10.2.3): seconds or a date. What is malformed, past
// or given twice asks for nothing.
func retryAfter(header http.Header, now time.Time) time.Duration {
	values := header.Values("Retry-After")
	if len(values) != 1 {
		return 0
	}
	value := strings.TrimSpace(values[0])
	if digits := strings.Trim(value, "0123456789") == ""; digits && value != "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(MaxRetryAfter/time.Second) { // the error: more than an int64 holds
			return MaxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}
