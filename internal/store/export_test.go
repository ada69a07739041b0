package store

import (
	"time"

	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// EventOf lets tests read events without leasing them.
func EventOf(id string, fields map[string]string) (outbox.Event, error) { return eventOf(id, fields) }

// Operations are those of all scripts, by what Redis remembers them by.
func Operations() map[string]string {
	all := map[string]string{}
	for _, one := range []*script{
		admitScript, createScript, originalScript, readScript, cancelScript, publicScript, settleScript, rotationScript, overrideScript,
		admitRotationScript, overridesScript,
		sweepListScript, sweepLineScript, sweepSingleScript, lookScript,
		leaseScript, leaseLostScript, deliveredScript, failedScript, deferredScript,
		deadBuryScript, deadListScript, deadResendScript, deadCountScript,
		endpointResumeScript, endpointTroubledScript, endpointToldScript,
	} {
		all[one.sha] = one.operation
	}
	return all
}

// LastUses lets tests choose the time.
type LastUses struct{ uses *lastUses }

func NewLastUses() LastUses { return LastUses{newLastUses()} }

func (l LastUses) Due(keyID string, now time.Time) bool { return l.uses.due(keyID, now) }

func (l LastUses) Wrote(keyID string) { l.uses.wrote(keyID) }

func (l LastUses) Remembered() int { return len(l.uses.written) }
