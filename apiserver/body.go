package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

// maxBodyBytes bounds a request's body.
const maxBodyBytes = 16 << 10

const errNotAnObject = requestError("the body must be one JSON object")

// readObject reads a body that is exactly one JSON object of UTF-8 text. Its fields go by their exact names. encoding/json would
// take the last of two equal names, match names in any case and mend broken text; with money at stake each of these is a requestError.
func readObject(w http.ResponseWriter, r *http.Request) (*object, error) {
	body, err := readBody(w, r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		w.Header().Set("Connection", "close") // rather than read what is left of it
		return nil, requestError("the body must be no larger than 16 KiB")
	case err != nil:
		return nil, requestError("the body could not be read")
	case !utf8.Valid(body):
		return nil, requestError("the body must be UTF-8 text")
	case len(bytes.TrimSpace(body)) == 0:
		return nil, errNotAnObject
	case !json.Valid(body):
		return nil, requestError("the body is not valid JSON")
	case hasLoneSurrogate(body):
		return nil, requestError("the body has an escaped surrogate without its other half")
	}
	return fieldsOf(string(body))
}

// readBody reads a body as short as most are into as much room as it takes, and another as it comes: whoever only announces a long one
// shall not be given room for it.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	const short = 1 << 10
	if r.ContentLength <= 0 || r.ContentLength > short {
		return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// shown quotes a caller's own text, at a length fit for a message.
func shown(text string) string {
	const longest = 64
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strconv.QuoteToASCII(text)
}

// hasLoneSurrogate looks for \uD800 to \uDFFF outside of a pair, which names no character. In valid
// JSON a backslash is always the beginning of an escape.
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

// fieldsOf takes an object apart. The body is valid JSON, so it is enough to see where each value ends: a json.Decoder would read
// it all a second time, which costs a charge more than anything else this process does for it.
func fieldsOf(body string) (*object, error) {
	rest, braced := strings.CutPrefix(strings.TrimLeft(body, jsonSpace), "{")
	if !braced {
		return nil, errNotAnObject
	}
	fields := &object{}
	fields.fields = fields.room[:0]
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
			return nil, requestError(fmt.Sprintf("the field %s is given twice", shown(name)))
		}
		rest = rest[end:]
	}
}

// endOfString is the length of the string at the beginning of valid JSON.
func endOfString(valid string) int {
	for i := 1; i < len(valid); i++ {
		switch valid[i] {
		case '\\':
			i++ // whatever is escaped, it does not end the string
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
				return i // of the object around it, behind a number or a word
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

// object is a JSON object that was taken apart. Names and values are as they stand in the body.
type object struct {
	fields []field
	// places are where fields are, once there are so many that looking through them would be a caller's way to keep this process busy.
	places map[string]int
	room   [5]field // of most objects
}

// field is a name and the JSON that is its value.
type field struct{ name, value string }

// few is how many fields are looked through sooner than a map of them is made.
const few = 16

// add takes a field, unless there is one of that name.
func (o *object) add(name, value string) bool {
	if _, twice := o.value(name); twice {
		return false
	}
	o.fields = append(o.fields, field{name, value})
	switch {
	case o.places != nil:
		o.places[name] = len(o.fields) - 1
	case len(o.fields) > few:
		o.places = make(map[string]int, 2*few)
		for place, known := range o.fields {
			o.places[known.name] = place
		}
	}
	return true
}

// value is the JSON of a field.
func (o *object) value(name string) (value string, given bool) {
	if o.places != nil {
		place, given := o.places[name]
		if !given {
			return "", false
		}
		return o.fields[place].value, true
	}
	for i := range o.fields {
		if o.fields[i].name == name {
			return o.fields[i].value, true
		}
	}
	return "", false
}

// given is value for a field that is read: null is absence.
func (o *object) given(name string) (value string, given bool) {
	value, given = o.value(name)
	return value, given && value != "null"
}

// cents reads an integer field; nil: not given.
func (o *object) cents(name, rule string) (*int64, error) {
	literal, given := o.given(name)
	if !given {
		return nil, nil //nolint:nilnil // absent is not an error
	}
	value, err := session.ParseCents(literal)
	if err != nil {
		return nil, &session.FieldError{Field: name, Rule: rule}
	}
	return &value, nil
}

// text reads a string field; empty: not given.
func (o *object) text(name, rule string) (string, error) {
	literal, given := o.given(name)
	if !given {
		return "", nil
	}
	if literal[0] != '"' {
		return "", &session.FieldError{Field: name, Rule: rule}
	}
	text, err := unquoted(literal)
	if err != nil {
		return "", &session.FieldError{Field: name, Rule: rule}
	}
	return text, nil
}

// unquoted is the text of a JSON string.
func unquoted(literal string) (string, error) {
	if strings.IndexByte(literal, '\\') < 0 && len(literal) > 1 && literal[0] == '"' {
		return literal[1 : len(literal)-1], nil
	}
	var text string
	err := json.Unmarshal([]byte(literal), &text)
	return text, err
}
