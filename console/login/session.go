package login

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
)

// logins are the persons' sessions in browsers. A cookie is random; Redis has its SHA-256 only, so who reads Redis can sign in as nobody.
// Like the id of a payment session the cookie begins with its bucket: all logins of a person are in one.
type logins struct {
	redis          *redis.Client
	idle, lifetime time.Duration
}

// ErrSignedOut means that there is no such login, or no longer.
var ErrSignedOut = errors.New("sign in first")

// The kinds of keys of logins.
const (
	// loginKey + hash of a cookie holds one login of a person. Its bucket is that of the person's account.
	loginKey = "login:"
	// loginsKey + hash of an account lists that person's logins by their end, in milliseconds.
	loginsKey = "logins:"
)

//go:embed *.lua
var luaFiles embed.FS

var (
	luaParts = redis.Parts{"clock": redis.Clock}

	createLogin = redis.NewScript("create_login", redis.Part(luaFiles, "create_login"), luaParts, nil)
	readLogin   = redis.NewScript("read_login", redis.Part(luaFiles, "read_login"), luaParts, nil)
	listLogins  = redis.NewScript("list_logins", redis.Part(luaFiles, "list_logins"), luaParts, nil)
	endLogins   = redis.NewScript("end_logins", redis.Part(luaFiles, "end_logins"), luaParts, nil)
)

// cookieValue is two hex digits of a bucket and 32 random bytes in base64.
type cookieValue string

const secretBytes = 32

// bucket is false for what cannot be a cookie of ours. Such a value costs no request to Redis.
func (c cookieValue) bucket() (session.Bucket, bool) {
	const hexDigits = 2
	if len(c) != hexDigits+base64.RawURLEncoding.EncodedLen(secretBytes) {
		return 0, false
	}
	if _, err := base64.RawURLEncoding.DecodeString(string(c[hexDigits:])); err != nil {
		return 0, false
	}
	bucket, err := strconv.ParseUint(string(c[:hexDigits]), 16, 8)
	return session.Bucket(bucket), err == nil && bucket < session.Buckets
}

func (c cookieValue) name() string {
	digest := sha256.Sum256([]byte(c))
	return hex.EncodeToString(digest[:])
}

func (p Person) keyspace() redis.Keyspace {
	return redis.BucketKeyspace(session.MerchantBucket(p.Account))
}

// listKey writes the key of the list of the person's logins.
func (p Person) listKey(call *redis.Call) {
	digest := sha256.Sum256([]byte(p.Account))
	call.Key("logins_key", p.keyspace(), loginsKey, hex.EncodeToString(digest[:]))
}

// maxLogins is how many logins a person may have; a further one ends the oldest.
const maxLogins = 20

// begin signs a person in and returns the cookie. The error is redis.ErrUnavailable or redis.ErrCorrupt.
func (l *logins) begin(ctx context.Context, p Person) (cookieValue, error) {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	cookie := cookieValue(fmt.Sprintf("%02x%s", session.MerchantBucket(p.Account), base64.RawURLEncoding.EncodeToString(secret)))
	record, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("encode a login: %w", err)
	}
	call := redis.NewCall(createLogin)
	call.Key("login_key", p.keyspace(), loginKey, cookie.name())
	p.listKey(&call)
	call.Text("record", string(record))
	call.Millis("idle", l.idle)
	call.Millis("lifetime", l.lifetime)
	call.Text("name", cookie.name())
	reply, err := l.redis.Run(ctx, &call)
	if err == nil {
		reply.RequireOK()
		err = reply.Err()
	}
	if err != nil {
		return "", fmt.Errorf("create a login: %w", err)
	}
	names, err := l.list(ctx, p)
	if err != nil {
		return "", err
	}
	return cookie, l.remove(ctx, p, names[:max(0, len(names)-maxLogins)])
}

// list returns the names of the person's logins, the oldest first.
func (l *logins) list(ctx context.Context, p Person) (names []string, err error) {
	call := redis.NewCall(listLogins)
	p.listKey(&call)
	reply, err := l.redis.Run(ctx, &call)
	if err != nil {
		return nil, fmt.Errorf("list the logins: %w", err)
	}
	for reply.More() {
		names = append(names, reply.Text())
	}
	if err := reply.Err(); err != nil {
		return nil, fmt.Errorf("list the logins: %w", err)
	}
	return names, nil
}

// find returns the login of a cookie, which then stays for another idle time. Errors: ErrSignedOut, those of Redis.
func (l *logins) find(ctx context.Context, cookie cookieValue) (p Person, err error) {
	bucket, ok := cookie.bucket()
	if !ok {
		return p, ErrSignedOut
	}
	call := redis.NewCall(readLogin)
	call.Key("login_key", redis.BucketKeyspace(bucket), loginKey, cookie.name())
	call.Millis("idle", l.idle)
	reply, err := l.redis.Run(ctx, &call)
	if err != nil {
		return p, fmt.Errorf("read a login: %w", err)
	}
	record := reply.Text()
	if err := reply.Err(); err != nil {
		return p, fmt.Errorf("read a login: %w", err)
	}
	if record == "" {
		return p, ErrSignedOut
	}
	if err := json.Unmarshal([]byte(record), &p); err != nil {
		return Person{}, fmt.Errorf("%w: read a login: %w", redis.ErrCorrupt, err)
	}
	return p, nil
}

// end signs out of this browser.
func (l *logins) end(ctx context.Context, p Person, cookie cookieValue) error {
	return l.remove(ctx, p, []string{cookie.name()})
}

// endAll signs out of every browser that was signed in when this began.
func (l *logins) endAll(ctx context.Context, p Person, cookie cookieValue) error {
	names, err := l.list(ctx, p)
	if err != nil {
		return err
	}
	return l.remove(ctx, p, append(names, cookie.name()))
}

// EndLogins ends all logins of an account, which is the provider's issuer URL, "#" and its id of the person, and returns how many there were.
// The error is redis.ErrUnavailable or redis.ErrCorrupt.
func EndLogins(ctx context.Context, client *redis.Client, account string) (ended int, err error) {
	l, p := &logins{redis: client}, Person{Account: account}
	names, err := l.list(ctx, p)
	if err != nil {
		return 0, err
	}
	return len(names), l.remove(ctx, p, names)
}

func (l *logins) remove(ctx context.Context, p Person, names []string) error {
	if len(names) == 0 {
		return nil
	}
	call := redis.NewCall(endLogins)
	p.listKey(&call)
	for _, name := range names {
		call.MoreKey(p.keyspace(), loginKey, name)
	}
	for _, name := range names {
		call.More(name)
	}
	reply, err := l.redis.Run(ctx, &call)
	if err == nil {
		reply.RequireOK()
		err = reply.Err()
	}
	if err != nil {
		return fmt.Errorf("end logins: %w", err)
	}
	return nil
}
