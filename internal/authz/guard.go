package authz

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// Why a caller is refused. Each wraps no token.
var (
	// ErrUnauthenticated says that the token is nobody's, or no token.
	ErrUnauthenticated = errors.New("the token is not accepted by the Kubernetes API")
	// ErrForbidden says that the token is somebody's who has no right to the path.
	ErrForbidden = errors.New("the account has no right to it")
	// ErrUnavailable says that the Kubernetes API gave no verdict, and none is remembered.
	ErrUnavailable = errors.New("the Kubernetes API cannot say who calls")
)

// Options make a Guard. Only Audience and Grace may be empty.
type Options struct {
	Tokens authenticationclient.TokenReviewInterface
	Access authorizationclient.SubjectAccessReviewInterface
	// Verb and Path are what the account must be allowed to do, as it is asked of the Kubernetes API: "post" and a path
	// that is no Kubernetes resource's.
	Verb, Path string
	// Audience is who a token must have been issued for; empty: the Kubernetes API.
	Audience string
	// Lifetime is how long a verdict is remembered, a good one as well as a bad one.
	Lifetime time.Duration
	// Grace is for how long after that a good verdict still counts while the Kubernetes API gives none. Default: not at all.
	Grace time.Duration
	Now   func() time.Time
	Log   *slog.Logger
}

// Guard decides about callers. It is safe for concurrent use.
type Guard struct {
	Options

	// In two memories, so that no number of bad tokens can crowd out the good ones.
	allowed, refused *verdicts
	asking           singleflight.Group
}

// reviewTimeout bounds one question to the Kubernetes API, which is two requests.
const reviewTimeout = 4 * time.Second

// New returns a Guard that remembers nothing yet.
func New(options Options) *Guard {
	return &Guard{Options: options, allowed: newVerdicts(), refused: newVerdicts()}
}

// Check returns nil if the token's account has the right, else one of this package's errors or
// that of ctx. Callers with the same token share one question, which outlives each of them.
func (g *Guard) Check(ctx context.Context, token string) error {
	if !plausible(token) {
		return ErrUnauthenticated
	}
	digest := sha256.Sum256([]byte(token))
	if decided, known := g.remembered(digest); known {
		return decided.err
	}
	answered := g.asking.DoChan(string(digest[:]), func() (any, error) {
		if decided, known := g.remembered(digest); known { // by a question that ended just now
			return nil, decided.err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		asked := g.Now()
		err := g.review(ctx, token)
		if errors.Is(err, ErrUnavailable) && g.allowed.wasGood(digest, asked.Add(-g.Grace)) {
			return nil, nil
		}
		g.remember(digest, verdict{err, asked.Add(g.Lifetime)})
		return nil, err
	})
	select {
	case answer := <-answered:
		return answer.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *Guard) remembered(digest [sha256.Size]byte) (verdict, bool) {
	now := g.Now()
	if decided, known := g.allowed.get(digest, now); known {
		return decided, true
	}
	return g.refused.get(digest, now)
}

func (g *Guard) remember(digest [sha256.Size]byte, decided verdict) {
	switch {
	case decided.err == nil:
		g.allowed.put(digest, decided, g.Now())
	case !errors.Is(decided.err, ErrUnavailable):
		g.allowed.drop(digest) // what was good is not any more, whatever the grace
		g.refused.put(digest, decided, g.Now())
	}
}

// plausible keeps from the Kubernetes API, and from its audit log, what cannot be an account's token: the
// API key of a merchant above all, which somebody may present at the wrong port. Tokens of service
// accounts are JWTs (RFC 7519, section 3), three parts of base64url.
func plausible(token string) bool {
	const longest = 8 << 10
	if len(token) > longest || strings.Count(token, ".") != 2 {
		return false
	}
	for part := range strings.SplitSeq(token, ".") {
		if part == "" || strings.ContainsFunc(part, notBase64URL) {
			return false
		}
	}
	return true
}

func notBase64URL(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '-' && r != '_'
}
