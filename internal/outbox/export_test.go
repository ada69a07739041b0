package outbox

import "github.com/merchant-operator/merchant-operator/internal/redis"

// Scripts are all of this package.
func Scripts() []*redis.Script {
	return []*redis.Script{
		rotationScript, leaseScript, forgetScript, endScript, failScript, deferScript, deadLetterScript,
		listDeadLettersScript, resendDeadLettersScript, pendingWorkScript, countBacklogScript,
		resumeEndpointScript, listUnhealthyScript, reportEndpointScript,
	}
}
