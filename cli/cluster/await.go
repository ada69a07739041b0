package cluster

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// awaitInterval is how often an object is read that is waited for.
const awaitInterval = 250 * time.Millisecond

// Progress is how far the operator is with an object.
type Progress struct {
	Done bool
	// State is what is missing.
	State string
	// Stalled: only a person can change that, so waiting is pointless.
	Stalled bool
}

// Unseen is the state of an object whose status is of an older spec.
const Unseen = "the operator has not seen it yet"

// Await reads an object until it is done, and prints what it waits for each time that this changes. A timeout is a terminal.NegativeError, and so is an
// object that waits for a person; with 0 it does not wait.
func (c *Cluster) Await(ctx context.Context, timeout time.Duration, object client.Object, look func() Progress) error {
	if timeout == 0 {
		return nil
	}
	reported := ""
	stalled := false
	err := wait.PollUntilContextTimeout(ctx, awaitInterval, timeout, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return false, err
		}
		seen := look()
		stalled = seen.Stalled && !seen.Done
		if !seen.Done && !stalled && seen.State != reported {
			fmt.Fprintf(c.notices, "waiting for %s: %s\n", object.GetName(), terminal.Inline(seen.State))
		}
		reported = seen.State
		return seen.Done || stalled, nil
	})
	if stalled && err == nil {
		return &terminal.NegativeError{Message: fmt.Sprintf("%s is not ready: %s", object.GetName(), reported)}
	}
	if wait.Interrupted(err) && ctx.Err() == nil {
		return &terminal.NegativeError{Message: fmt.Sprintf("%s is not ready after %s: %s", object.GetName(), timeout, reported)}
	}
	return err
}
