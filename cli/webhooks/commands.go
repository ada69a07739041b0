// Package webhooks shows the health of webhooks, lists dead letters and sends them again, through a pod of the dispatcher or a Redis URL.
package webhooks

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
