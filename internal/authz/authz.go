// Package authz says who may call one path of ours: it asks the Kubernetes API whose a token is (TokenReview) and whether
// that account may (SubjectAccessReview), and remembers the verdict for some seconds. Rails and readers of metrics are
// told apart from everybody else by it. It knows neither HTTP nor sessions, and belongs to all roles. docs/design/rail.md
// says why it is not the authenticator of k8s.io/apiserver.
package authz

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// review asks the Kubernetes API whose the token is and what they may do.
func (g *Guard) review(ctx context.Context, token string) error {
	account, err := g.authenticate(ctx, token)
	if err != nil {
		return err
	}
	allowed, err := g.authorize(ctx, account)
	if err != nil {
		return err
	}
	if !allowed {
		g.Log.Warn("refused a caller without the right", "account", account.Username, "verb", g.Verb, "path", g.Path)
		return ErrForbidden
	}
	return nil
}

func (g *Guard) authenticate(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	question := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if g.Audience != "" {
		question.Spec.Audiences = []string{g.Audience}
	}
	answer, err := g.Tokens.Create(ctx, question, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("%w: whose the token is: %w", ErrUnavailable, err)
	}
	// An authenticator that knows no audiences answers without any, and must not count as having checked.
	if !answer.Status.Authenticated || (g.Audience != "" && !slices.Contains(answer.Status.Audiences, g.Audience)) {
		return authenticationv1.UserInfo{}, ErrUnauthenticated
	}
	return answer.Status.User, nil
}

func (g *Guard) authorize(ctx context.Context, account authenticationv1.UserInfo) (bool, error) {
	extra := make(map[string]authorizationv1.ExtraValue, len(account.Extra))
	for key, values := range account.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	answer, err := g.Access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:                  account.Username,
		UID:                   account.UID,
		Groups:                account.Groups,
		Extra:                 extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: g.Path, Verb: g.Verb},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("%w: what %s may do: %w", ErrUnavailable, account.Username, err)
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}
