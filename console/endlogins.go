package console

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/internal/redis"
)

// endTimeout is how long a command waits for an answer of Redis. A person waits, no request.
const endTimeout = 5 * time.Second

// EndLogins ends all logins of an account, for example of somebody who has left, and returns how many there were. The account is in the log
// line "signed in": the provider's issuer URL, "#" and its id of the person.
func EndLogins(ctx context.Context, redisURL, account string) (ended int, err error) {
	switch issuer, subject, whole := strings.Cut(account, "#"); {
	case redisURL == "":
		return 0, errors.New("set --redis-url or REDIS_URL")
	case !whole || issuer == "" || subject == "":
		return 0, errors.New("ACCOUNT must be the issuer URL, \"#\" and the provider's id of the person")
	}
	client, err := redis.Open(redis.Options{URL: redisURL, Timeout: endTimeout})
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.Close() }() // the answer is there
	return login.EndLogins(ctx, client, account)
}
