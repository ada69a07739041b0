package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// maxBodyBytes limits the body of a request.
const maxBodyBytes = 16 << 10

// RequestError says what is wrong with a request. The caller reads it.
type RequestError string

func (e RequestError) Error() string { return string(e) }

// ErrBodyTimeout means that the body did not come within the time that a client has to send a request.
var ErrBodyTimeout = errors.New("the body did not come in time")

// timedBody is the body of a request, and knows whether reading it took too long. The server cancels the request then.
type timedBody struct {
	io.ReadCloser

	late bool
}

// Read reads the body.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.late = b.late || err != nil && errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}

// UnknownFieldError is a field that the service does not know, sent with a test key.
type UnknownFieldError struct{ Name string }

func (e UnknownFieldError) Error() string { return "unknown field " + Quoted(e.Name) }

const errNotAnObject = RequestError("body must be one JSON object")

// ReadObject reads a body of exactly one JSON object in UTF-8. encoding/json is too lenient for money: it takes the last of
// duplicate fields, ignores the case of names and repairs broken text. Here each of these is a RequestError.
func ReadObject(w http.ResponseWriter, r *http.Request) (*Object, error) {
	body, err := readBody(w, r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		w.Header().Set("Connection", "close") // instead of reading the rest
		return nil, RequestError("body is larger than 16 KiB")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, ErrBodyTimeout
	case err != nil:
		return nil, RequestError("body could not be read")
	case !utf8.Valid(body):
		return nil, RequestError("body is not valid UTF-8")
	case len(bytes.TrimSpace(body)) == 0:
		return nil, errNotAnObject
	case !json.Valid(body):
		return nil, RequestError("body is not valid JSON")
	case hasLoneSurrogate(body):
		return nil, RequestError("body has an unpaired surrogate escape")
	}
	return parseObject(string(body))
}

// readBody reads a short body, as most are, into memory of its length. A longer one gets memory only as it arrives, because
// its Content-Length may be a lie.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	const short = 1 << 10
	if r.ContentLength <= 0 || r.ContentLength > short {
		return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// Quoted quotes text of the caller, shortened for a message.
func Quoted(text string) string {
	const longest = 64
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strconv.QuoteToASCII(text)
}

// hasLoneSurrogate finds \uD800 to \uDFFF without a pair, which is no character. In valid JSON every backslash starts an
// escape.
func hasLoneSurrogate(body []byte) bool {
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			continue
		}
		i++ // the escaped character
		switch unit := escapedUnit(body[i:]); {
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return true
		case unit >= 0xD800 && unit <= 0xDBFF:
			const escape = len(`uXXXX`)
			rest := body[i+escape:]
			if !bytes.HasPrefix(rest, []byte(`\`)) {
				return true
			}
			if low := escapedUnit(rest[1:]); low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += escape + 1
		}
	}
	return false
}

// escapedUnit reads the UTF-16 code unit of uXXXX; it is -1 for another escape.
func escapedUnit(escape []byte) int64 {
	const size = len(`uXXXX`)
	if len(escape) < size || escape[0] != 'u' {
		return -1
	}
	unit, err := strconv.ParseInt(string(escape[1:size]), 16, 32)
	if err != nil {
		return -1
	}
	return unit
}

const jsonSpace = " \t\r\n"

// parseObject splits an object into its fields. The body is valid JSON, so it only finds the end of each value: a json.Decoder
// would parse it a second time, the largest cost of a charge in this process.
func parseObject(body string) (*Object, error) {
	rest, braced := strings.CutPrefix(strings.TrimLeft(body, jsonSpace), "{")
	if !braced {
		return nil, errNotAnObject
	}
	fields := &Object{}
	fields.fields = fields.inline[:0]
	for {
		rest = strings.TrimLeft(rest, jsonSpace+",")
		if rest == "" || rest[0] == '}' {
			return fields, nil
		}
		end := endOfString(rest)
		name, err := unquoted(rest[:end])
		if err != nil {
			return nil, errNotAnObject
		}
		rest = strings.TrimLeft(rest[end:], jsonSpace+":")
		end = endOfValue(rest)
		if !fields.add(name, rest[:end]) {
			return nil, RequestError("duplicate field " + Quoted(name))
		}
		rest = rest[end:]
	}
}

// endOfString is the length of the string at the beginning of valid JSON.
func endOfString(valid string) int {
	for i := 1; i < len(valid); i++ {
		switch valid[i] {
		case '\\':
			i++ // an escaped character does not end the string
		case '"':
			return i + 1
		}
	}
	return len(valid)
}

// endOfValue is the length of the value at the beginning of valid JSON.
func endOfValue(valid string) int {
	depth := 0
	for i := 0; i < len(valid); i++ {
		switch valid[i] {
		case '"':
			i += endOfString(valid[i:]) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // of the enclosing object, after a number or a literal
			}
			depth--
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(valid)
}

// Object is the fields of a JSON object. Its readers return the zero value of a field that is absent or null, and keep the
// first error in err, so that a request is decoded in one expression.
type Object struct {
	fields []field
	// positions finds fields by name. It exists for many fields only, where a linear search would let a caller waste CPU.
	positions map[string]int
	inline    [5]field // memory of fields for most objects
	err       error
}

// field is a name and its raw JSON value. known: a reader has asked for it.
type field struct {
	name, value string
	known       bool
}

// maxScanned is the number of fields up to which a linear search is used.
const maxScanned = 16

// add appends a field, and reports false for a duplicate.
func (o *Object) add(name, value string) bool {
	if _, twice := o.value(name); twice {
		return false
	}
	o.fields = append(o.fields, field{name: name, value: value})
	switch {
	case o.positions != nil:
		o.positions[name] = len(o.fields) - 1
	case len(o.fields) > maxScanned:
		o.positions = make(map[string]int, 2*maxScanned)
		for place, known := range o.fields {
			o.positions[known.name] = place
		}
	}
	return true
}

// value is the raw JSON of a field.
func (o *Object) value(name string) (value string, given bool) {
	if o.positions != nil {
		place, given := o.positions[name]
		if !given {
			return "", false
		}
		return o.read(place), true
	}
	for i := range o.fields {
		if o.fields[i].name == name {
			return o.read(i), true
		}
	}
	return "", false
}

func (o *Object) read(place int) string {
	o.fields[place].known = true
	return o.fields[place].value
}

// Given is value, but false for null, which counts as absent.
func (o *Object) Given(name string) (value string, given bool) {
	value, given = o.value(name)
	return value, given && value != "null"
}

// ignoredFieldsHeader names the fields of a body that the service does not know.
const ignoredFieldsHeader = "Ignored-Fields"

// unnamed stands in Ignored-Fields for the fields that it does not name. It is no name that could be there.
const unnamed = "…"

// nameable is a field that Ignored-Fields may name. Any other could be a header of its own, or mislead who reads it.
var nameable = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Finish is called after all known fields were read, and returns the first error of the body. It names the other fields in the header
// Ignored-Fields; with strict the first of them is an error.
func (o *Object) Finish(header http.Header, strict bool) error {
	const most = 8
	var named []string
	rest := false
	for i := range o.fields {
		switch unknown := &o.fields[i]; {
		case unknown.known:
		case strict:
			return UnknownFieldError{unknown.name}
		case len(named) == most || !nameable.MatchString(unknown.name):
			rest = true
		default:
			named = append(named, unknown.name)
		}
	}
	if rest {
		named = append(named, unnamed)
	}
	if len(named) > 0 {
		header.Set(ignoredFieldsHeader, strings.Join(named, ", "))
	}
	return o.err
}

// Ignore has Finish name a field that was read like one that the service does not know. strict: the
// field is refused instead, for this rule.
func (o *Object) Ignore(name, rule string, strict bool) {
	if strict {
		o.fail(name, rule)
		return
	}
	for i := range o.fields {
		if o.fields[i].name == name {
			o.fields[i].known = false
		}
	}
}

func (o *Object) fail(name, rule string) {
	if o.err == nil {
		o.err = &session.FieldError{Field: name, Rule: rule}
	}
}

// Integer reads an integer field.
func (o *Object) Integer(name, rule string) (value int64, given bool) {
	literal, given := o.Given(name)
	if !given {
		return 0, false
	}
	value, err := session.ParseCents(literal)
	if err != nil {
		o.fail(name, rule)
		return 0, false
	}
	return value, true
}

// RefuseNull refuses a field that is null, where an absent one asks for something: null is then more likely an amount that a program has lost.
func (o *Object) RefuseNull(name, rule string) {
	if value, given := o.value(name); given && value == "null" {
		o.fail(name, rule)
	}
}

// Cents reads an integer field; nil: absent.
func (o *Object) Cents(name, rule string) *int64 {
	value, given := o.Integer(name, rule)
	if !given {
		return nil
	}
	return new(value)
}

// RequiredInteger reads an integer field that must be there.
func (o *Object) RequiredInteger(name, rule string) int64 {
	value, given := o.Integer(name, rule)
	if !given {
		o.fail(name, rule)
	}
	return value
}

// Text reads a string field; empty: absent.
func (o *Object) Text(name, rule string) string {
	literal, given := o.Given(name)
	if !given {
		return ""
	}
	if literal[0] != '"' {
		o.fail(name, rule)
		return ""
	}
	text, err := unquoted(literal)
	if err != nil {
		o.fail(name, rule)
	}
	return text
}

// rfc3339Form refuses what time.Parse accepts: a comma, an hour of one digit, an offset of a day.
var rfc3339Form = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// Timestamp reads a time: Unix milliseconds, as in the rest of the API, or an RFC 3339 string, as payment networks write it.
// It is rounded down to milliseconds. Zero: absent.
func (o *Object) Timestamp(name, rule string) time.Time {
	literal, given := o.Given(name)
	if !given {
		return time.Time{}
	}
	var at time.Time
	if milliseconds, err := session.ParseCents(literal); err == nil { // an integer in any notation
		at = time.UnixMilli(milliseconds)
	} else if text := o.Text(name, rule); rfc3339Form.MatchString(text) {
		at, _ = time.Parse(time.RFC3339, text)
	}
	if at.IsZero() { // not a time, or the year 1
		o.fail(name, rule)
	}
	return at.UTC().Truncate(time.Millisecond)
}

// unquoted decodes a JSON string.
func unquoted(literal string) (string, error) {
	if strings.IndexByte(literal, '\\') < 0 && len(literal) > 1 && literal[0] == '"' {
		return literal[1 : len(literal)-1], nil
	}
	var text string
	err := json.Unmarshal([]byte(literal), &text)
	return text, err
}
