// Package explain says why the API refuses a key, with the code of the API: explain-401 for a key, allowlist test for an address.
package explain

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
