package floor

import (
	"time"

	"github.com/redis/go-redis/v9"
)

func newClient(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	const timeout = 300 * time.Millisecond
	options.ContextTimeoutEnabled = true
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = timeout, timeout, timeout, timeout
	options.MaxRetries = -1
	options.Protocol = 2
	options.DisableIdentity = true
	return redis.NewClient(options), nil
}
