package floor

import (
	"strconv"
	"strings"
)

// Plan is what the floors serve.
type Plan struct {
	// Redis is its URL.
	Redis string `json:"redis"`
	// Create and Read are the calls that the product makes of Redis to create a session and to read one publicly.
	Create Call `json:"create"`
	Read   Call `json:"read"`
	// CreateAnswer and ReadAnswer are what the product answers with.
	CreateAnswer string `json:"createAnswer"`
	ReadAnswer   string `json:"readAnswer"`
}

// Call is a command as it was seen on its way to Redis.
type Call struct {
	Words []string `json:"words"`
	// Session is the session id in it. A create needs a new one for each call.
	Session string `json:"session"`
}

// anew returns the words of the call with a session id of its own, of the same length.
func (c Call) anew(n uint64) []any {
	words := make([]any, len(c.Words))
	var id string
	for i, word := range c.Words {
		if at := strings.Index(word, c.Session); at >= 0 {
			if id == "" {
				id = numbered(c.Session, n)
			}
			words[i] = word[:at] + id + word[at+len(c.Session):]
			continue
		}
		words[i] = word
	}
	return words
}

// numbered puts a number in place of an id's end.
func numbered(id string, n uint64) string {
	digits := strconv.FormatUint(n, 36)
	return id[:len(id)-len(digits)] + digits
}

// again returns the words of the call as they are.
func (c Call) again() []any {
	words := make([]any, len(c.Words))
	for i, word := range c.Words {
		words[i] = word
	}
	return words
}
