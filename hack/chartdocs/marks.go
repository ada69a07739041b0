package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// marks are what a comment says beyond prose; the package's comment lists them.
type marks struct {
	enum        []string
	types       []string
	pattern     string
	itemPattern string
	items       string
	values      string
	minimum     *int
	maximum     *int
	open        bool
}

// add takes a mark without its plus sign.
func (m *marks) add(mark string) error {
	name, argument, _ := strings.Cut(mark, "=")
	var err error
	switch name {
	case "enum":
		m.enum = strings.Split(argument, ",")
	case "type":
		m.types = strings.Split(argument, ",")
		for _, each := range m.types {
			if err == nil {
				err = checkType(each)
			}
		}
	case "pattern":
		m.pattern = argument
		_, err = regexp.Compile(argument)
	case "itemPattern":
		m.itemPattern = argument
		_, err = regexp.Compile(argument)
	case "items":
		m.items = argument
		err = checkType(argument)
	case "values":
		m.values = argument
		err = checkType(argument)
	case "minimum":
		m.minimum, err = number(argument)
	case "maximum":
		m.maximum, err = number(argument)
	case "open":
		m.open = true
	default:
		err = fmt.Errorf("no mark is called %q", name)
	}
	if err != nil {
		return fmt.Errorf("+%s: %w", mark, err)
	}
	return nil
}

func number(text string) (*int, error) {
	n, err := strconv.Atoi(text)
	return &n, err
}

func checkType(name string) error {
	known := []string{"string", "integer", "boolean", "object"}
	if !slices.Contains(known, name) {
		return fmt.Errorf("%q is none of the types %s", name, strings.Join(known, ", "))
	}
	return nil
}
