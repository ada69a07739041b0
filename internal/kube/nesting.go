package kube

import (
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// maxNesting is the depth of the arrays and objects that are read of an answer. No object of Kubernetes has a tenth of it.
const maxNesting = 500

// BoundNesting empties what is nested deeper than maxNesting in the JSON that clients of the config read. Go refuses JSON of more than
// 10,000 levels. The API server stores managed fields of that depth, as whoever may create an object sends them, and a list or an event
// has some levels more: one object of a tenant would fail the list of all.
func BoundNesting(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return nestingTransport{next} })
}

type nestingTransport struct{ next http.RoundTripper }

// RoundTrip sends the request, and bounds the answer if it is JSON.
func (t nestingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil && strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		response.Body = &shallowBody{ReadCloser: response.Body}
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (t nestingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// shallowBody is JSON, of which it leaves out the contents of each array and object at the depth maxNesting.
type shallowBody struct {
	io.ReadCloser

	depth             int
	inString, escaped bool
}

func (b *shallowBody) Read(p []byte) (int, error) {
	for {
		n, err := b.ReadCloser.Read(p)
		if kept := b.filter(p[:n]); kept > 0 || n == 0 || err != nil {
			return kept, err
		}
	}
}

// filter moves what is kept to the front, and returns its length.
func (b *shallowBody) filter(p []byte) (kept int) {
	for _, c := range p {
		keep := b.depth < maxNesting
		switch {
		case b.escaped:
			b.escaped = false
		case b.inString:
			b.escaped, b.inString = c == '\\', c != '"'
		case c == '"':
			b.inString = true
		case c == '{', c == '[':
			b.depth++
		case c == '}', c == ']':
			keep = b.depth <= maxNesting
			b.depth--
		}
		if keep {
			p[kept] = c
			kept++
		}
	}
	return kept
}
