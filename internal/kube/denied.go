package kube

import (
	"errors"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// denial is how the API server says that an admission policy or webhook refuses a request. It names them, which tells the writer of an object nothing.
var denial = regexp.MustCompile(`(?s)(?:ValidatingAdmissionPolicy '.*?' with binding '.*?' denied request|admission webhook ".*?" denied the request): (.+)$`)

// DeniedReason returns why an admission policy or webhook refuses a request, in its author's words. denied is false if the error is another one.
func DeniedReason(err error) (reason string, denied bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return "", false
	}
	found := denial.FindStringSubmatch(status.Status().Message)
	if found == nil {
		return "", false
	}
	return found[1], true
}
