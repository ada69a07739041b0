package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
)

const jsonSpace = " \t\r\n"

// fieldsOf takes an object apart. The body is valid JSON, so it is enough to see where each value ends: a json.Decoder would read
// it all a second time, which costs a charge more than anything else this process does for it.
func fieldsOf(body []byte) (map[string]json.RawMessage, error) {
	rest, object := bytes.CutPrefix(bytes.TrimLeft(body, jsonSpace), []byte("{"))
	if !object {
		return nil, errNotAnObject
	}
	const usual = 5
	fields := make(map[string]json.RawMessage, usual)
	for {
		rest = bytes.TrimLeft(rest, jsonSpace+",")
		if len(rest) == 0 || rest[0] == '}' {
			return fields, nil
		}
		end := endOfString(rest)
		name, err := unquoted(rest[:end])
		if err != nil {
			return nil, errNotAnObject
		}
		rest = bytes.TrimLeft(rest[end:], jsonSpace+":")
		end = endOfValue(rest)
		if _, twice := fields[name]; twice {
			return nil, requestError(fmt.Sprintf("the field %s is given twice", shown(name)))
		}
		fields[name] = rest[:end:end]
		rest = rest[end:]
	}
}

// unquoted is the text of a JSON string.
func unquoted(raw []byte) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 && len(raw) > 1 && raw[0] == '"' {
		return string(raw[1 : len(raw)-1]), nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	return text, err
}

// endOfString is the length of the string at the beginning of valid JSON.
func endOfString(valid []byte) int {
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
func endOfValue(valid []byte) int {
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
