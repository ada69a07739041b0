package apiserver

import (
	"fmt"
	"strings"
)

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
