package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"
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
