package store

// The kinds of keys of this package. Those of events, and what a dispatcher polls, are in package outbox; sessionhash has the key of a session.
const (
	// idempotencyKey + account + ":" + hash of the Idempotency-Key holds "<key of the session> <fingerprint of its charge>".
	idempotencyKey = "idem:"
	// orderKey + account + ":" + hash of an orderRef holds which sessions of the account have it; see orders.go.
	orderKey = "order:"
	// expiryQueueKey + lifetime lists the sessions of one lifetime, in milliseconds, in the order of their creation.
	expiryQueueKey = "expiry:"

	// owedKey lists the payments that are to be refunded, "<session id> <payment>", by when they were reported, in milliseconds; see owed.go.
	owedKey = "owed"
	// requestedKey lists the open requests for refunds, "<session id> <refund id>", by when they were made, in milliseconds.
	requestedKey = "requested"
	// refundsKey + rail lists what owedKey and requestedKey have of one rail.
	refundsKey = "refunds:"
	// accountRequestedKey + account lists the open requests of one merchant.
	accountRequestedKey = "requested:"
)

// EventsChannel is the channel of a bucket on which scripts say what happened, as '<session id, or -> <account>'; see outbox/lib/queue.lua.
const EventsChannel = "ended"
