package store

import (
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// Scripts are all of this package.
func Scripts() []*redis.Script {
	return []*redis.Script{
		admitScript, admitRotationScript, createScript, readOriginalScript, readScript, publicReadScript, watchedReadScript, cancelScript, readFeedScript, listOrderScript, expireOrderScript, listEndedScript, admitEndedScript, readStoryScript,
		settleScript, writeOverrideScript, endOverrideScript, readOverridesScript, readLastUsesScript, listOverdueScript, sweepQueueScript, sweepSessionScript,
		addBlockedScript, listBlockedScript, reportBlockedScript, forgetBlockedScript,
	}
}

// LastUses lets tests choose the time.
type LastUses struct{ uses *lastUses }

func NewLastUses() LastUses { return LastUses{newLastUses()} }

func (l LastUses) Due(keyID string, now time.Time) bool { return l.uses.due(keyID, now) }

func (l LastUses) Wrote(keyID string) { l.uses.wrote(keyID) }

func (l LastUses) Remembered() int { return len(l.uses.written) }
