// Package support is what support asks for: the versions, and a report without keys, secrets and personal data.
package support

import (
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/cli/cluster"
)

// commands are the commands of this room.
type commands struct {
	genericiooptions.IOStreams

	access  *cluster.Access
	now     func() time.Time
	version string
}
