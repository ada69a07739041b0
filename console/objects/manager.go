package objects

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// GitManagedError means that a GitOps tool would undo the change.
type GitManagedError struct {
	Manager gitops.Manager
	object  string
}

// Error is for the log.
func (e *GitManagedError) Error() string {
	return e.object + " is managed by " + e.Manager.Tool
}

// CheckManager returns a GitManagedError if a GitOps tool applies the object, whose kind is for the message.
func CheckManager(kind string, object client.Object) error {
	if owner := gitops.FindManager(object); owner.Tool != "" {
		return &GitManagedError{owner, kind + " " + object.GetNamespace() + "/" + object.GetName()}
	}
	return nil
}
