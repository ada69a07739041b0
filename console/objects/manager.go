package objects

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// GitManagedError means that a GitOps tool would undo the change.
type GitManagedError struct {
	owner  gitops.Manager
	object string
}

// Error says what to change instead.
func (e *GitManagedError) Error() string {
	return fmt.Sprintf("%s is managed by %s. Change it in Git: %s %s.", e.object, e.owner.Tool, e.owner.Tool, e.owner.Source)
}

// CheckManager returns a GitManagedError if a GitOps tool applies the object, whose kind is for the message.
func CheckManager(kind string, object client.Object) error {
	if owner := gitops.FindManager(object); owner.Tool != "" {
		return &GitManagedError{owner, kind + " " + object.GetNamespace() + "/" + object.GetName()}
	}
	return nil
}
