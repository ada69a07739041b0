package store

import (
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver/outbox"
)

// EventOf lets tests read events without leasing them.
func EventOf(id string, fields map[string]string) (outbox.Event, error) { return eventOf(id, fields) }

// LastUses lets tests choose the time.
type LastUses struct{ uses *lastUses }

func NewLastUses() LastUses { return LastUses{newLastUses()} }

func (l LastUses) Due(keyID string, now time.Time) bool { return l.uses.due(keyID, now) }

func (l LastUses) Wrote(keyID string) { l.uses.wrote(keyID) }

func (l LastUses) Remembered() int { return len(l.uses.written) }
