package kube

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

const (
	// maxNesting is the depth of the arrays and objects that are read of an answer. No object of
	// Kubernetes has a tenth of it.
	maxNesting = 500
	// maxText is the number of bytes that are read of a string in a Merchant, an ApiKey or an Event.
	// The longest that a spec may have is half of it. It is a multiple of four, for base64.
	maxText = 4096
	// maxElement is the number of bytes of a label, annotation, owner or field manager that is read.
	maxElement = 2048
	// maxManagers is the number of field managers that are read.
	maxManagers = 4
)

// Keep says which metadata a role reads of objects that tenants write. Of the rest of their labels,
// annotations, finalizers, owners and managed fields nothing reaches the memory of the process, because
// a tenant may write a megabyte of it into each object. The operator's finalizer and the controller
// among the owners are always read.
type Keep struct {
	// Keys of labels and annotations.
	Keys []string
	// Managers are field managers. Their fields are never read.
	Managers []string
	// Trusted is a namespace that no tenant writes. Its Secrets may be read as protobuf, which is cheaper
	// than JSON and cannot be shortened while it is read. Empty: Secrets are read as the client asks.
	Trusted string
}

// BoundNesting empties what is nested deeper than maxNesting in the JSON that clients of the config read. Go refuses JSON of more than
// 10,000 levels. The API server stores managed fields of that depth, as whoever may create an object sends them, and a list or an event
// has some levels more: one object of a tenant would fail the list of all.
func BoundNesting(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return slimTransport{next: next} })
}

// Slim bounds the nesting, and shortens objects that tenants write while they are read: reads, watches
// and the answers to writes. What was read so must not be written back as a whole.
func Slim(config *rest.Config, keep Keep) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return slimTransport{next: next, keep: newKeptMetadata(keep), trusted: keep.Trusted}
	})
}

// WholeMetadata returns a context for the read of one object whose metadata is to be changed.
func WholeMetadata(ctx context.Context) context.Context {
	return context.WithValue(ctx, wholeKey{}, true)
}

// wholeKey is the key of WholeMetadata in the context of a request.
type wholeKey struct{}

type slimTransport struct {
	next    http.RoundTripper
	keep    *keptMetadata // nil: all
	trusted string
}

// RoundTrip sends the request, and shortens the answer if it is JSON.
func (t slimTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	body := &slimBody{}
	if t.keep != nil {
		secrets := strings.Contains(request.URL.Path, "/secrets")
		if secrets && t.trusted != "" && !strings.Contains(request.URL.Path, "/namespaces/"+t.trusted+"/") {
			request = acceptJSON(request)
		}
		texts := strings.Contains(request.URL.Path, "/apis/"+v1alpha1.SchemeGroupVersion.Group+"/") ||
			strings.Contains(request.URL.Path, "/apis/events.k8s.io/")
		if texts {
			body.maxText = maxText
		}
		if (secrets || texts) && request.Context().Value(wholeKey{}) == nil {
			body.keep = t.keep
		}
	}
	response, err := t.next.RoundTrip(request)
	if err == nil && strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		body.ReadCloser, response.Body = response.Body, body
		response.ContentLength = -1
	}
	return response, err
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (t slimTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// acceptJSON returns the request without protobuf among what it accepts.
func acceptJSON(request *http.Request) *http.Request {
	var accepted []string
	for kind := range strings.SplitSeq(request.Header.Get("Accept"), ",") {
		if !strings.Contains(kind, "protobuf") {
			accepted = append(accepted, kind)
		}
	}
	if len(accepted) == 0 {
		accepted = []string{"application/json"}
	}
	request = request.Clone(request.Context())
	request.Header.Set("Accept", strings.Join(accepted, ","))
	return request
}

// keptMetadata decides which elements of metadata are read.
type keptMetadata struct{ keys, managers [][]byte }

func newKeptMetadata(keep Keep) *keptMetadata {
	k := &keptMetadata{}
	for _, key := range keep.Keys {
		k.keys = append(k.keys, []byte(`"`+key+`":`))
	}
	for _, manager := range keep.Managers {
		k.managers = append(k.managers, []byte(`"manager":"`+manager+`"`))
	}
	return k
}

// elements are the elements of one array or map of metadata.
type elements int

const (
	noElements elements = iota
	labelElements
	finalizerElements
	ownerElements
	managerElements
)

// find returns what the field of metadata holds; noElements: something short.
func (*keptMetadata) find(field []byte) elements {
	switch string(field) {
	case "labels", "annotations":
		return labelElements
	case "finalizers":
		return finalizerElements
	case "ownerReferences":
		return ownerElements
	case "managedFields":
		return managerElements
	}
	return noElements
}

var (
	ownFinalizer    = []byte(`"` + v1alpha1.Finalizer + `"`)
	controllerOwner = []byte(`"controller":true`)
)

// keeps reports whether the element, JSON without spaces, is read. kept are those before it.
func (k *keptMetadata) keeps(in elements, element []byte, kept int) bool {
	switch in {
	case labelElements:
		return hasAny(k.keys, element, bytes.HasPrefix)
	case finalizerElements:
		return bytes.Equal(element, ownFinalizer)
	case ownerElements:
		return bytes.Contains(element, controllerOwner)
	case managerElements:
		return kept < maxManagers && hasAny(k.managers, element, bytes.Contains)
	case noElements:
	}
	return false
}

func hasAny(all [][]byte, element []byte, has func(element, one []byte) bool) bool {
	for _, one := range all {
		if has(element, one) {
			return true
		}
	}
	return false
}

// place is where in an answer an array or object is.
type place uint8

const (
	elsewhere place = iota
	inObject        // an object of Kubernetes, a list of them, or an event of a watch
	inItems         // items of a list
	inMetadata
)

// maxPlaces is above the depth of the metadata of an object in a list.
const maxPlaces = 8

// slimBody is JSON without what is nested too deeply and, if keep is set, without the metadata that is
// not kept. It holds at most one element of metadata.
type slimBody struct {
	io.ReadCloser

	keep    *keptMetadata
	maxText int // 0: any

	in, out []byte
	unread  []byte // of out
	err     error  // of ReadCloser, after out

	depth   int
	places  [maxPlaces]place // of the arrays and objects around, by depth
	keyNext bool             // the next string is a key of an object whose place is known
	key     []byte           // the last such key, cut to maxKey
	inKey   bool

	inString, escaped bool
	text              int  // bytes of the string
	cut               bool // the rest of the string is left out
	unicode           int  // hex digits left of an escape sequence

	// Of the array or map of metadata that is read, at the depth elementsDepth.
	elements      elements
	elementsDepth int
	element       []byte
	tooLong       bool
	kept          int
}

// maxKey is longer than the keys that are looked for.
const maxKey = 32

// Read reads what is kept.
func (b *slimBody) Read(p []byte) (int, error) {
	const chunk = 16 << 10
	for len(b.unread) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		if b.in == nil {
			b.in, b.out = make([]byte, chunk), make([]byte, 0, chunk+maxElement)
		}
		var n int
		n, b.err = b.ReadCloser.Read(b.in)
		b.out = b.out[:0]
		b.filter(b.in[:n])
		b.unread = b.out
	}
	n := copy(p, b.unread)
	b.unread = b.unread[n:]
	return n, nil
}

// filter appends to out what is kept of p.
func (b *slimBody) filter(p []byte) {
	for _, c := range p {
		switch {
		case b.inString:
			b.addText(c)
		case c == '"':
			b.inString, b.text, b.cut = true, 0, false
			if b.inKey = b.keyNext; b.inKey {
				b.key = b.key[:0]
			}
			b.add(c)
		case c == '{', c == '[':
			b.open(c)
		case c == '}', c == ']':
			b.close(c)
		case c == ',' && b.elements != noElements && b.depth == b.elementsDepth:
			b.endElement()
		case c == ',':
			b.keyNext = b.place() == inObject || b.place() == inMetadata
			b.add(c)
		case c == ':':
			b.keyNext = false
			b.add(c)
		case b.elements != noElements && (c == ' ' || c == '\n' || c == '\t' || c == '\r'):
		default:
			b.add(c)
		}
	}
}

// addText adds a byte of a string, or its end.
func (b *slimBody) addText(c byte) {
	switch whole := !b.escaped && b.unicode == 0; {
	case b.escaped:
		b.escaped = false
		if c == 'u' {
			b.unicode = 4
		}
	case b.unicode > 0:
		b.unicode--
	case c == '"':
		b.inString, b.inKey = false, false
		b.add(c)
		return
	case c == '\\':
		b.escaped = true
		fallthrough
	default:
		const continuation, mask = 0x80, 0xC0 // of UTF-8
		b.cut = b.cut || whole && b.maxText > 0 && b.text >= b.maxText && c&mask != continuation
	}
	b.text++
	if b.inKey && len(b.key) < maxKey {
		b.key = append(b.key, c)
	}
	if !b.cut {
		b.add(c)
	}
}

// place returns where the innermost array or object is.
func (b *slimBody) place() place {
	if b.keep == nil || b.depth >= maxPlaces {
		return elsewhere
	}
	return b.places[b.depth]
}

// open begins an array or object.
func (b *slimBody) open(c byte) {
	around, inside, found := b.place(), elsewhere, noElements
	switch key := string(b.key); {
	case b.keep == nil || b.elements != noElements:
	case b.depth == 0 && c == '{',
		around == inItems && c == '{',
		around == inObject && key == "object" && c == '{':
		inside = inObject
	case around == inObject && key == "items" && c == '[':
		inside = inItems
	case around == inObject && key == "metadata" && c == '{':
		inside = inMetadata
	case around == inMetadata:
		found = b.keep.find(b.key)
	}
	b.add(c)
	b.depth++
	if b.depth < maxPlaces {
		b.places[b.depth] = inside
	}
	b.keyNext = inside == inObject || inside == inMetadata
	if found != noElements {
		b.elements, b.elementsDepth, b.element, b.tooLong, b.kept = found, b.depth, b.element[:0], false, 0
	}
}

// close ends an array or object.
func (b *slimBody) close(c byte) {
	if b.elements != noElements && b.depth == b.elementsDepth {
		b.endElement()
		b.elements = noElements
	}
	b.depth--
	b.add(c)
	b.keyNext = false
}

// endElement adds the element of metadata that ends here, if it is kept.
func (b *slimBody) endElement() {
	if !b.tooLong && len(b.element) > 0 && b.keep.keeps(b.elements, b.element, b.kept) {
		if b.kept > 0 {
			b.out = append(b.out, ',')
		}
		b.out = append(b.out, b.element...)
		b.kept++
	}
	b.element, b.tooLong = b.element[:0], false
}

// add adds a byte, unless it is nested too deeply: in an element of metadata, in more than the element itself.
func (b *slimBody) add(c byte) {
	switch {
	case b.elements == noElements:
		if b.depth < maxNesting {
			b.out = append(b.out, c)
		}
	case b.depth > b.elementsDepth+1:
	case len(b.element) < maxElement:
		b.element = append(b.element, c)
	default:
		b.tooLong = true
	}
}
