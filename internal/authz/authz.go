// Package authz authenticates and authorizes callers of one path at the Kubernetes API (TokenReview, SubjectAccessReview), and
// caches the decisions. It serves the internal port and the metrics. A Reviewer authorizes people whom somebody else has
// authenticated. docs/design/rail.md says why it is not the authenticator of k8s.io/apiserver.
package authz

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
)

// Why a caller is refused. No error contains a token.
var (
	// ErrUnauthenticated means that the token is missing or invalid.
	ErrUnauthenticated = errors.New("the Kubernetes API does not accept the token")
	// ErrForbidden means that the token's account may not access the path.
	ErrForbidden = errors.New("the account is not authorized")
	// ErrTooManyRefused means that the peer has sent too many tokens that were refused, so this one was not reviewed.
	ErrTooManyRefused = errors.New("cannot authenticate: too many refused tokens from one address")
	// ErrUnavailable means that the Kubernetes API did not respond, and no decision is cached.
	ErrUnavailable = errors.New("cannot authenticate: the Kubernetes API is unavailable")
)

// Options of a Guard. Audience and Grace are optional.
type Options struct {
	TokenReviews         authenticationclient.TokenReviewInterface
	SubjectAccessReviews authorizationclient.SubjectAccessReviewInterface
	// Verb and Path are what the account must be allowed to do: a verb such as "post" on a non-resource path.
	Verb, Path string
	// Audience is the audience that a token must have; empty: that of the Kubernetes API.
	Audience string
	// Lifetime is how long a decision is cached.
	Lifetime time.Duration
	// Grace is how much longer an allowed caller stays allowed while the Kubernetes API is unavailable. Default 0.
	Grace time.Duration
	Now   func() time.Time
	Log   *slog.Logger
}

// Guard checks callers. It is safe for concurrent use.
type Guard struct {
	Options

	// Two caches, so that invalid tokens cannot evict the valid ones.
	allowed, refused *decisionCache
	reviews          singleflight.Group

	// rejections limits the reviewed and refused tokens of one peer, and slots all reviews at once.
	rejections *ratelimit.Limiter
	slots      chan struct{}
}

// RefusedTokens limits the refused tokens of one peer about which the Kubernetes API is asked.
var RefusedTokens = ratelimit.Policy{RequestsPerSecond: 1, Burst: 100}

// Remembered is how long a token whose cached decision has ended is still known as one that was allowed; at least Grace. It may be
// reviewed again whatever else its address sends, because behind a mesh sidecar or SNAT all callers have one address. An hour is the
// usual life of a service account's token.
const Remembered = time.Hour

// MaxReviews is how many reviews of one Guard are under way at most.
const MaxReviews = 16

// reviewTimeout limits one check at the Kubernetes API, which is two requests.
const reviewTimeout = 4 * time.Second

// maxTokens limits each cache of a Guard. There are few rails; more tokens are an attack.
const maxTokens = 4096

// New returns a Guard with empty caches.
func New(options Options) *Guard {
	return &Guard{
		Options: options, allowed: newDecisionCache(maxTokens, max(options.Grace, Remembered)), refused: newDecisionCache(maxTokens, 0),
		rejections: ratelimit.NewLimiter(RefusedTokens, options.Now), slots: make(chan struct{}, MaxReviews),
	}
}

// Check returns the user name of the token's account if it is authorized, else an error of this package or of ctx. Concurrent checks of one
// token share one review, which goes on when a caller leaves. peer is the address of the connection, with or without a port: the
// Kubernetes API is not asked without end about what it refuses. A token that was allowed within the time Remembered does not suffer from the others of its peer.
func (g *Guard) Check(ctx context.Context, peer, token string) (account string, err error) {
	if !jwtShaped(token) {
		return "", ErrUnauthenticated
	}
	digest := sha256.Sum256([]byte(token))
	if decided, known := g.cached(digest); known {
		return decided.account, decided.err
	}
	if _, allowed := g.wasAllowed(digest, g.Now(), g.Grace); !allowed && !plausible(token, g.Audience, g.Now()) {
		return "", ErrUnauthenticated
	}
	if host, _, err := net.SplitHostPort(peer); err == nil {
		peer = host
	}
	reviewed := g.reviews.DoChan(string(digest[:]), func() (any, error) { return g.reviewUnlessRefused(ctx, digest, peer, token) })
	select {
	case result := <-reviewed:
		account, _ = result.Val.(string)
		return account, result.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// reviewUnlessRefused is reviewInTurn, unless the peer has had too many tokens refused, and keeps the decision. It goes on when ctx ends.
func (g *Guard) reviewUnlessRefused(ctx context.Context, digest [sha256.Size]byte, peer, token string) (account string, err error) {
	if decided, known := g.cached(digest); known { // by a review that has just ended
		return decided.account, decided.err
	}
	_, remembered := g.wasAllowed(digest, g.Now(), max(g.Grace, Remembered))
	if !remembered {
		if _, allowed := g.rejections.Allow(peer); !allowed {
			return "", ErrTooManyRefused
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
	defer cancel()
	started := g.Now()
	account, err = g.reviewInTurn(ctx, token)
	if !remembered && (err == nil || errors.Is(err, ErrUnavailable)) {
		g.rejections.Refund(peer)
	}
	if errors.Is(err, ErrUnavailable) {
		if account, allowed := g.wasAllowed(digest, started, g.Grace); allowed {
			return account, nil
		}
	}
	g.cache(digest, decision{account, err, started.Add(g.Lifetime)})
	return account, err
}

// reviewInTurn is review, once fewer than MaxReviews are under way.
func (g *Guard) reviewInTurn(ctx context.Context, token string) (account string, err error) {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
		return g.review(ctx, token)
	case <-ctx.Done():
		return "", fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

// wasAllowed reports whether the token was allowed, by a decision that has ended less than this long ago, and not refused since.
func (g *Guard) wasAllowed(digest [sha256.Size]byte, now time.Time, ago time.Duration) (account string, allowed bool) {
	return g.allowed.wasAllowed(digest, now.Add(-ago))
}

func (g *Guard) cached(digest [sha256.Size]byte) (decision, bool) {
	now := g.Now()
	if decided, known := g.allowed.get(digest, now); known {
		return decided, true
	}
	return g.refused.get(digest, now)
}

func (g *Guard) cache(digest [sha256.Size]byte, decided decision) {
	switch {
	case decided.err == nil:
		g.allowed.put(digest, decided, g.Now())
	case !errors.Is(decided.err, ErrUnavailable):
		g.allowed.delete(digest) // no grace and no free review for a token that is refused now
		g.refused.put(digest, decided, g.Now())
	}
}

// jwtShaped reports whether a token has the form of a JWT (RFC 7519, section 3), as those of service accounts. Others, above all
// merchants' API keys sent to the wrong port, must not get into the audit log of the Kubernetes API.
func jwtShaped(token string) bool {
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

// clockLeeway is how far the clock of this process may be ahead of the one that a token's end is by. Only the Kubernetes API decides
// whether a token has ended: a replica with a wrong clock must not refuse every rail. What ended long ago needs no review.
const clockLeeway = 24 * time.Hour

// plausible reports whether the Kubernetes API could accept the token, by what the token says of itself: its end and its audience. The
// issuer is not compared, because the API server may have several while one replaces another.
func plausible(token, audience string, now time.Time) bool {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return false
	}
	var claims struct {
		Expiry   float64         `json:"exp"`
		Audience json.RawMessage `json:"aud"`
	}
	if json.Unmarshal(text, &claims) != nil {
		return false
	}
	if claims.Expiry > 0 && float64(now.Add(-clockLeeway).Unix()) > claims.Expiry {
		return false
	}
	if audience == "" || claims.Audience == nil {
		return audience == ""
	}
	var one string
	var several []string
	_ = json.Unmarshal(claims.Audience, &one)
	_ = json.Unmarshal(claims.Audience, &several)
	return one == audience || slices.Contains(several, audience)
}

// review authenticates and authorizes a token at the Kubernetes API.
func (g *Guard) review(ctx context.Context, token string) (account string, err error) {
	user, err := g.authenticate(ctx, token)
	if err != nil {
		return "", err
	}
	allowed, err := g.authorize(ctx, user)
	if err != nil {
		return "", err
	}
	if !allowed {
		g.Log.Warn("caller is not authorized", "account", user.Username, "verb", g.Verb, "path", g.Path)
		return "", ErrForbidden
	}
	return user.Username, nil
}

func (g *Guard) authenticate(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if g.Audience != "" {
		review.Spec.Audiences = []string{g.Audience}
	}
	result, err := g.TokenReviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("%w: review a token: %w", ErrUnavailable, err)
	}
	// An authenticator without support for audiences returns none; then the audience was not checked.
	if !result.Status.Authenticated || (g.Audience != "" && !slices.Contains(result.Status.Audiences, g.Audience)) {
		return authenticationv1.UserInfo{}, ErrUnauthenticated
	}
	return result.Status.User, nil
}

func (g *Guard) authorize(ctx context.Context, account authenticationv1.UserInfo) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(account.Extra))
	for key, values := range account.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	result, err := g.SubjectAccessReviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:                  account.Username,
		UID:                   account.UID,
		Groups:                account.Groups,
		Extra:                 extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: g.Path, Verb: g.Verb},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("%w: review the access of %s: %w", ErrUnavailable, account.Username, err)
	}
	return result.Status.Allowed && !result.Status.Denied, nil
}
