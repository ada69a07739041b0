// Package merchants shows merchants with what is to be done about them, and creates them with their first key.
package merchants

import (
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
)

// commands are the commands of this room.
type commands struct {
	genericiooptions.IOStreams

	access *cluster.Access
	now    func() time.Time
}
