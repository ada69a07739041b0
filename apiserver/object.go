package apiserver

import (
	"encoding/json"
	"strings"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

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
