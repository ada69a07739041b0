package terminal

import (
	"errors"
	"fmt"
	"io"
)

// Exit codes of kubectl merchant.
const (
	ExitDone     = 0
	ExitError    = 1
	ExitUsage    = 2
	ExitNegative = 3 // the command did its work, and the answer is no
	ExitEnds     = 4 // a plan ends something, or may
)

// usageError is a wrong command line.
type usageError struct {
	cause error
	hint  string // a sentence that says what to do
}

// Usage returns an error about a wrong command line. The hint is a sentence that says what to do.
func Usage(hint, format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...), hint}
}

func (e *usageError) Error() string { return e.cause.Error() }

// hintError is an error that says what to do.
type hintError struct {
	cause error
	hint  string
}

// Hinted returns an error with a hint, a sentence that says what to do. The format may wrap another error.
func Hinted(hint, format string, args ...any) error {
	return &hintError{fmt.Errorf(format, args...), hint}
}

func (e *hintError) Error() string { return e.cause.Error() }

func (e *hintError) Unwrap() error { return e.cause }

// Hint is what an error says to do; empty: it says nothing, because it is about no mistake or obstacle that the plugin knows.
func Hint(err error) string {
	if with, ok := errors.AsType[*hintError](err); ok {
		return with.hint
	}
	if wrong, ok := errors.AsType[*usageError](err); ok {
		return wrong.hint
	}
	return ""
}

// NegativeError means that the command did its work, and the answer is no: not ready, or refused. An empty message means that the
// result is printed already.
type NegativeError struct{ Message string }

func (e *NegativeError) Error() string { return e.Message }

// ErrEnds means that a plan ends or refuses something, or may. The plan is printed already.
var ErrEnds = errors.New("something ends or is refused, or may be")

// Answered reports whether the error of a command is its answer, which is printed: the command did its work.
func Answered(err error) bool {
	negative, ok := errors.AsType[*NegativeError](err)
	return ok && negative.Message == "" || errors.Is(err, ErrEnds)
}

// PrintError prints an error for people, and returns the exit code. Describe returns the words of an error that is not about the
// command line.
func PrintError(to io.Writer, err error, describe func(error) string) int {
	if negative, ok := errors.AsType[*NegativeError](err); ok {
		if negative.Message != "" {
			fmt.Fprintln(to, negative.Message)
		}
		return ExitNegative
	}
	if errors.Is(err, ErrEnds) {
		return ExitEnds
	}
	if wrong, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(to, "error: %v\n%s\n", wrong.cause, wrong.hint)
		return ExitUsage
	}
	fmt.Fprintf(to, "error: %s\n", describe(err))
	if with, ok := errors.AsType[*hintError](err); ok {
		fmt.Fprintln(to, with.hint)
	}
	return ExitError
}
