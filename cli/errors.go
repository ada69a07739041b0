package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// printError prints an error for people, and returns the exit code.
func printError(to io.Writer, err error) int {
	if missing, ok := parseForbidden(err); ok {
		fmt.Fprint(to, missing)
		return terminal.ExitError
	}
	code := terminal.PrintError(to, err, describe)
	if code == terminal.ExitError && notInstalled(err) {
		fmt.Fprintln(to, "Is merchant-operator installed in this cluster? kubectl config current-context prints which one it is.")
	}
	return code
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
