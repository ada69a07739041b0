package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Exit codes.
const (
	exitDone     = 0
	exitError    = 1
	exitUsage    = 2
	exitNegative = 3
	exitEnds     = 4
)

// usageError is a wrong command line.
type usageError struct {
	cause error
	hint  string // a sentence that says what to do
}

func usage(hint, format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...), hint}
}

func (e *usageError) Error() string { return e.cause.Error() }

// hintError is an error that says what to do.
type hintError struct {
	cause error
	hint  string
}

func hinted(hint, format string, args ...any) error {
	return &hintError{fmt.Errorf(format, args...), hint}
}

func (e *hintError) Error() string { return e.cause.Error() }

func (e *hintError) Unwrap() error { return e.cause }

// negativeError means that the command did its work, and the answer is no: not ready, or refused. What it found is printed already
// if the message is empty.
type negativeError struct{ message string }

func (e *negativeError) Error() string { return e.message }

// endsError means that a plan ends or refuses something, or may. The plan is printed already.
type endsError struct{}

func (*endsError) Error() string { return "something ends or is refused, or may be" }

// printError prints an error for people, and returns the exit code.
func printError(to io.Writer, err error) int {
	if negative, ok := errors.AsType[*negativeError](err); ok {
		if negative.message != "" {
			fmt.Fprintln(to, negative.message)
		}
		return exitNegative
	}
	if _, ok := errors.AsType[*endsError](err); ok {
		return exitEnds
	}
	if wrong, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(to, "error: %v\n%s\n", wrong.cause, wrong.hint)
		return exitUsage
	}
	if missing, ok := parseForbidden(err); ok {
		fmt.Fprint(to, missing)
		return exitError
	}
	fmt.Fprintf(to, "error: %s\n", describe(err))
	if with, ok := errors.AsType[*hintError](err); ok {
		fmt.Fprintln(to, with.hint)
	}
	if notInstalled(err) {
		fmt.Fprintln(to, "Is merchant-operator installed in this cluster? kubectl config current-context prints which one it is.")
	}
	return exitError
}

// missingRight is a right that the person does not have.
type missingRight struct{ user, verb, resource, group, namespace string }

// forbidden is how every Kubernetes API server describes a missing right.
var forbidden = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]+)" in API group "([^"]*)" (?:in the namespace "([^"]+)"|at the cluster scope)`)

func parseForbidden(err error) (missingRight, bool) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(status) {
		return missingRight{}, false
	}
	found := forbidden.FindStringSubmatch(status.ErrStatus.Message)
	if found == nil {
		return missingRight{}, false
	}
	return missingRight{found[1], found[2], found[3], found[4], found[5]}, true
}

// String says which rule to add.
func (m missingRight) String() string {
	where, role := "in namespace "+m.namespace, "a Role in that namespace, or a ClusterRole,"
	if m.namespace == "" {
		where, role = "in all namespaces", "a ClusterRole"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "error: %s may not %s %s %s\nAdd this rule to %s that is bound to this user:\n", m.user, m.verb, m.resource, where, role)
	fmt.Fprintf(&text, "- apiGroups: [%q]\n  resources: [%q]\n  verbs: [%q]\n", m.group, m.resource, m.verb)
	return text.String()
}
