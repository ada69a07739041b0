package store

import "time"

// Options configure a Store. Only URL is required.
type Options struct {
	// URL says where Redis is; see Open for its forms. It may hold a password: it is never logged.
	URL string
	// Timeout bounds each operation, waiting for a connection included. Default 300 ms.
	Timeout time.Duration
	// PoolSize is the number of connections to each Redis server. Default 10 per CPU.
	PoolSize int
	// SessionRetention is how long a session outlives its expiry. Default 72 h, at least 24 h: a
	// session must outlive the Idempotency-Key that names it.
	SessionRetention time.Duration
}
