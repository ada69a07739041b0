package apiserver

import (
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// overrideOf says what the record says, for replicas that have not seen it.
func overrideOf(record published.KeyRecord, now time.Time) store.Override {
	override := store.Override{KeyRef: refOf(record), Order: record.Order()}
	for _, accepted := range record.Accepts(now) {
		override.Accepted = append(override.Accepted, store.Accepted(accepted))
	}
	return override
}

func refOf(record published.KeyRecord) store.KeyRef {
	return store.KeyRef{MerchantID: record.MerchantID, KeyID: record.KeyID}
}
