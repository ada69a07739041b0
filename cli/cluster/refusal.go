package cluster

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MissingRight is a right that the person does not have.
type MissingRight struct{ User, verb, resource, group, namespace string }

// forbidden is how every Kubernetes API server describes a missing right.
var forbidden = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]+)" in API group "([^"]*)" (?:in the namespace "([^"]+)"|at the cluster scope)`)

// ParseForbidden returns the right whose absence the API server reports, if the error does.
func ParseForbidden(err error) (MissingRight, bool) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsForbidden(status) {
		return MissingRight{}, false
	}
	found := forbidden.FindStringSubmatch(status.ErrStatus.Message)
	if found == nil {
		return MissingRight{}, false
	}
	return MissingRight{found[1], found[2], found[3], found[4], found[5]}, true
}

// String says which rule to add.
func (m MissingRight) String() string {
	where, role := "in namespace "+m.namespace, "a Role in that namespace, or a ClusterRole,"
	if m.namespace == "" {
		where, role = "in all namespaces", "a ClusterRole"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "error: %s may not %s %s %s\nAdd this rule to %s that is bound to this user:\n", m.User, m.verb, m.resource, where, role)
	fmt.Fprintf(&text, "- apiGroups: [%q]\n  resources: [%q]\n  verbs: [%q]\n", m.group, m.resource, m.verb)
	return text.String()
}

// NotInstalled reports whether the API server does not know the kind.
func NotInstalled(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err)
}

// RefusesObject reports whether the API server has decided about the object. An account that may not apply it at all is an error.
func RefusesObject(err error) bool {
	if _, noRight := ParseForbidden(err); noRight {
		return false
	}
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || apierrors.IsConflict(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.IsNotFound(err) && !NotInstalled(err) || apierrors.IsInternalError(err) && strings.HasPrefix(err.Error(), typedPatch)
}
