package outbox

import "github.com/merchant-operator/merchant-operator/internal/redis"

// Scripts are all of this package.
func Scripts() []*redis.Script {
	return []*redis.Script{
		rotationScript, testScript, leaseScript, forgetScript, endScript, failScript, retryTestScript, deferScript, deadLetterScript,
		dropDeadLettersScript, listDeadLettersScript, findDeadLettersScript, resendDeadLettersScript, pendingWorkScript, countBacklogScript,
		resumeEndpointScript, readEndpointsScript, reportEndpointScript, forgetEndpointScript,
	}
}
