package outbox

// The kinds of keys of this package. Package store uses those with a capital letter as well: its scripts record events.
const (
	// EventKey + event id is the hash of one event.
	EventKey = "event:"
	// FeedKey + account is the stream of what happened to it, the oldest first.
	FeedKey = "feed:"
	// QueueKey is the queue of the events to deliver, and DueKey the accounts in it; see lib/queue.lua.
	QueueKey = "queue"
	DueKey   = "due"
	// holdersKey is the hash of the holders of leases: how many heartbeats each has made.
	holdersKey = "holders"
	// deadLettersKey holds the dead letters by the time they were given up, in milliseconds.
	deadLettersKey = "dead"
	// accountDeadLettersKey + account holds the dead letters of one account. Of test mode these are only events that cannot be read.
	accountDeadLettersKey = "dead:"
	// EndpointKey + merchant id is the hash of the health of a merchant's endpoint.
	EndpointKey = "endpoint:"
	// watchedKey holds the merchants whose endpoint fails, is disabled, or has a change of health to report, by time.
	watchedKey = "watched"
	// RotationKey + key id holds when the key of one ApiKey was issued that the last key.rotated reported.
	RotationKey = "rotation:"
	// testKey + merchant id holds the fingerprint of the last testTrigger that was recorded.
	testKey = "test:"
	// webhookTestKey + merchant id is the hash of the last test event that a person asked for, with its answer.
	webhookTestKey = "webhooktest:"

	// Two indexes that package store keeps, and PendingWork looks at. ExpiryKey says when the sweep must look at an expiry queue, by its
	// lifetime, or at a single session; see list_overdue.lua. BlockedKey lists the merchants with blocked addresses, by when they were reported.
	ExpiryKey  = "expiry"
	BlockedKey = "blocked"
)
