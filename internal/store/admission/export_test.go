package admission

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
)

// UseMemory lets tests choose the time.
type UseMemory struct{ uses *lastUses }

func NewUseMemory() UseMemory { return UseMemory{newLastUses(published.LastUseStep)} }

func (l UseMemory) Due(digest apikey.Digest, now time.Time) bool { return l.uses.due(digest, now) }

func (l UseMemory) MarkWritten(digest apikey.Digest) { l.uses.markWritten(digest) }

func (l UseMemory) Remembered() int { return len(l.uses.written) }
