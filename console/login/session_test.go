package login

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

const patience = 30 * time.Second

// newLogins returns logins in a Redis of their own, and a client to look into it.
func newLogins(t *testing.T) (*logins, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	return &logins{storetest.Client(t, server.URL()), time.Hour, 12 * time.Hour}, storetest.Inspect(t, server)
}

// Who signs in again and again fills no Redis: a person has 20 logins, and the oldest ends.
func TestLogins_OldestEnds(t *testing.T) {
	l, server := newLogins(t)
	p := Person{Account: "alice", User: "oidc:alice"}
	var cookies []cookieValue
	for range maxLogins + 2 {
		cookie, err := l.begin(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		cookies = append(cookies, cookie)
		created := server.Time(t.Context()).Val().UnixMilli()
		await.Until(t, patience, "a later login is newer", func() bool { return server.Time(t.Context()).Val().UnixMilli() > created })
	}
	if _, err := l.begin(t.Context(), Person{Account: "bob", User: "oidc:bob"}); err != nil {
		t.Fatal(err)
	}
	for n, cookie := range cookies {
		_, err := l.find(t.Context(), cookie)
		if ended := errors.Is(err, ErrSignedOut); ended != (n < 2) {
			t.Errorf("login %d of %d: %v", n+1, len(cookies), err)
		}
	}
	if keys := server.Keys(t.Context(), "*login:*").Val(); len(keys) != maxLogins+1 {
		t.Errorf("Redis has %d logins: %v", len(keys), keys)
	}
}

// Who has left is signed out of every browser, and nobody else is.
func TestEndLogins(t *testing.T) {
	l, _ := newLogins(t)
	begin := func(account string) cookieValue {
		t.Helper()
		cookie, err := l.begin(t.Context(), Person{Account: account, User: "oidc:" + account})
		if err != nil {
			t.Fatal(err)
		}
		return cookie
	}
	leaver, stays := []cookieValue{begin("alice"), begin("alice")}, begin("bob")
	for n, want := range []int{2, 0} {
		if ended, err := EndLogins(t.Context(), l.redis, "alice"); ended != want || err != nil {
			t.Errorf("call %d ended %d logins (%v), want %d", n+1, ended, err, want)
		}
	}
	for _, cookie := range leaver {
		if _, err := l.find(t.Context(), cookie); !errors.Is(err, ErrSignedOut) {
			t.Errorf("a login of the leaver: %v", err)
		}
	}
	if _, err := l.find(t.Context(), stays); err != nil {
		t.Errorf("another person's login: %v", err)
	}
}

func TestFind_LoginEnds(t *testing.T) {
	l, server := newLogins(t)
	l.idle, l.lifetime = time.Hour, 2*time.Hour
	cookie, err := l.begin(t.Context(), Person{Account: "a", User: "oidc:a"})
	if err != nil {
		t.Fatal(err)
	}
	bucket, _ := cookie.bucket()
	key := storetest.BucketTag(bucket) + "login:" + cookie.name()
	for _, test := range []struct {
		name  string
		idle  time.Duration
		want  time.Duration
		found bool
	}{
		{"a use makes the idle time begin again", 30 * time.Minute, 30 * time.Minute, true},
		{"but not beyond the lifetime", 3 * time.Hour, 2 * time.Hour, true},
	} {
		l.idle = test.idle
		if _, err := l.find(t.Context(), cookie); (err == nil) != test.found {
			t.Errorf("%s: %v", test.name, err)
		}
		if left := server.PTTL(t.Context(), key).Val(); left > test.want || left < test.want-time.Minute {
			t.Errorf("%s: the login ends in %s, want %s", test.name, left, test.want)
		}
	}
	if keys := server.Keys(t.Context(), "*").Val(); strings.Contains(strings.Join(keys, " "), string(cookie)) {
		t.Errorf("Redis has the cookie: %v", keys)
	}
}
