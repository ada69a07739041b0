package authz_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/test/await"
)

// someGoodTokens accepts tokens by their suffix, fast enough for tens of thousands of reviews.
type someGoodTokens struct {
	authenticationclient.TokenReviewInterface

	suffix string // of the tokens that are good
	asked  int
	away   bool // reviews fail
}

func (s *someGoodTokens) Create(_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	s.asked++
	if s.away {
		return nil, http.ErrServerClosed
	}
	review.Status.Authenticated = strings.HasSuffix(review.Spec.Token, s.suffix)
	return review, nil
}

type allowAll struct {
	authorizationclient.SubjectAccessReviewInterface
}

func (allowAll) Create(_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	review.Status.Allowed = true
	return review, nil
}

// A flood of tokens that are all different neither crowds out the rails nor lets anybody in, and what is
// remembered of it is forgotten again.
func TestCheck_FloodOfBadTokens(t *testing.T) {
	tokens := &someGoodTokens{suffix: "good"}
	now := time.Now()
	guard := authz.New(authz.Options{
		TokenReviews: tokens, SubjectAccessReviews: allowAll{}, Verb: "post", Path: path, Lifetime: lifetime,
		Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
	})
	from := 0
	check := func(signature string, want error, asked int) {
		t.Helper()
		before := tokens.asked
		if _, err := guard.Check(t.Context(), fmt.Sprintf("10.0.%d.%d:1", from>>8, from&0xff), jwt("{}", signature)); !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", signature, err, want)
		}
		if got := tokens.asked - before; got != asked {
			t.Fatalf("%s: asked %d times, want %d", signature, got, asked)
		}
	}
	check("first-good", nil, 1)
	for i := range 20_000 {
		from = 1 + i/100
		check(fmt.Sprintf("bad-%d", i), authz.ErrUnauthenticated, 1)
	}
	check("one-more-bad", authz.ErrTooManyRefused, 0)
	check("first-good", nil, 0)
	check("second-good", authz.ErrTooManyRefused, 0) // never seen before, beside a flood from its own address
	from = 0
	check("second-good", nil, 1)
	check("second-good", nil, 0)
	check("bad-19999", authz.ErrUnauthenticated, 1) // there was no room for it
	now = now.Add(lifetime)
	check("bad-19999", authz.ErrUnauthenticated, 1)
	check("bad-19999", authz.ErrUnauthenticated, 0) // now there is
	from = 200
	check("third-good", nil, 1) // the flood from there has paused
}

// sidecar is a Guard whose callers all have one address, as behind a mesh sidecar or SNAT.
type sidecar struct {
	t      *testing.T
	guard  *authz.Guard
	tokens *someGoodTokens
	now    time.Time
	bad    int
}

func newSidecar(t *testing.T, grace time.Duration) *sidecar {
	t.Helper()
	s := &sidecar{t: t, tokens: &someGoodTokens{suffix: "good"}, now: time.Now()}
	s.guard = authz.New(authz.Options{
		TokenReviews: s.tokens, SubjectAccessReviews: allowAll{}, Verb: "post", Path: path, Lifetime: lifetime, Grace: grace,
		Now: func() time.Time { return s.now }, Log: slog.New(slog.DiscardHandler),
	})
	return s
}

func (s *sidecar) check(signature string, want error) {
	s.t.Helper()
	if _, err := s.guard.Check(s.t.Context(), peer, jwt("{}", signature)); !errors.Is(err, want) {
		s.t.Fatalf("%s: %v, want %v", signature, err, want)
	}
}

// flood sends bad tokens until no more are reviewed.
func (s *sidecar) flood() {
	s.t.Helper()
	for range 2 * authz.RefusedTokens.Burst {
		s.bad++
		_, err := s.guard.Check(s.t.Context(), peer, jwt("{}", fmt.Sprintf("bad-%d", s.bad)))
		if errors.Is(err, authz.ErrTooManyRefused) {
			return
		}
	}
	s.t.Fatal("the flood is not limited")
}

// A rail must not be kept out by those who share its address.
func TestCheck_AllowedBeforeTheFlood(t *testing.T) {
	s := newSidecar(t, 0)
	s.check("first-good", nil)
	s.check("dismissed-good", nil)
	for range 3 {
		s.now = s.now.Add(lifetime)
		s.flood()
		s.check("first-good", nil)
	}
	s.check("second-good", authz.ErrTooManyRefused)

	s.tokens.suffix = "first-good"
	s.check("dismissed-good", authz.ErrUnauthenticated)
	s.now = s.now.Add(lifetime)
	s.flood()
	s.check("dismissed-good", authz.ErrTooManyRefused) // what was refused since is as unknown as any

	s.now = s.now.Add(authz.Remembered - 1)
	s.flood()
	s.check("first-good", nil)
	s.now = s.now.Add(lifetime + authz.Remembered)
	s.flood()
	s.check("first-good", authz.ErrTooManyRefused)
}

// Tokens that come and go do not crowd out the memory of one in use.
func TestCheck_AllowedBeforeManyOthers(t *testing.T) {
	s := newSidecar(t, 0)
	s.check("first-good", nil)
	others := func(name string, count int) {
		t.Helper()
		for i := range count {
			s.check(fmt.Sprintf("%s-%d-good", name, i), nil)
		}
		s.now = s.now.Add(lifetime)
	}
	others("early", 4000)
	s.check("first-good", nil)
	s.now = s.now.Add(lifetime)
	others("late", 4095) // with first-good as many as there is room for: no early one is left, in whatever order they are dropped
	s.flood()
	s.check("first-good", nil)
	s.check("early-0-good", authz.ErrTooManyRefused) // there is room for the latest only
}

// A flood does not end the grace of an outage, which may be longer than the memory of those without one.
func TestCheck_GraceInAFlood(t *testing.T) {
	const grace = 2 * authz.Remembered
	s := newSidecar(t, grace)
	s.check("first-good", nil)
	s.now = s.now.Add(lifetime + grace - 1)
	s.flood()
	s.tokens.away = true
	s.check("first-good", nil)
	s.check("second-good", authz.ErrTooManyRefused)
}

// Good tokens cost a peer nothing, however many it has.
func TestCheck_GoodTokensAreNotCounted(t *testing.T) {
	guard := authz.New(authz.Options{
		TokenReviews: &someGoodTokens{suffix: "good"}, SubjectAccessReviews: allowAll{}, Verb: "post", Path: path, Lifetime: lifetime,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	for i := range 1000 {
		if _, err := guard.Check(t.Context(), peer, jwt("{}", fmt.Sprintf("%d-good", i))); err != nil {
			t.Fatalf("token %d: %v", i, err)
		}
	}
}

// slowTokens reviews nothing before it is released, and counts the reviews in progress.
type slowTokens struct {
	someGoodTokens

	goOn          chan struct{}
	underWay, max atomic.Int64
}

func (s *slowTokens) Create(_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	s.max.Store(max(s.max.Load(), s.underWay.Add(1)))
	<-s.goOn
	s.underWay.Add(-1)
	return review, nil
}

// Many peers together do not take the Kubernetes API for themselves either.
func TestCheck_ReviewsInProgress(t *testing.T) {
	tokens := &slowTokens{goOn: make(chan struct{})}
	guard := authz.New(authz.Options{
		TokenReviews: tokens, SubjectAccessReviews: allowAll{}, Verb: "post", Path: path, Lifetime: lifetime, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	var callers sync.WaitGroup
	for i := range 10 * authz.MaxReviews {
		callers.Go(func() {
			_, err := guard.Check(t.Context(), fmt.Sprintf("10.1.0.%d:1", i), jwt("{}", strconv.Itoa(i)))
			if !errors.Is(err, authz.ErrUnauthenticated) {
				t.Errorf("Check: %v", err)
			}
		})
	}
	await.Until(t, patience, "all places are taken", func() bool { return tokens.underWay.Load() == authz.MaxReviews })
	close(tokens.goOn)
	callers.Wait()
	if got := tokens.max.Load(); got != authz.MaxReviews {
		t.Errorf("%d reviews were under way at once", got)
	}
}

// An authenticator behind the Kubernetes API that knows no audiences says that a token is good, and not
// for whom.
func TestCheck_UncheckedAudience(t *testing.T) {
	guard := authz.New(authz.Options{
		TokenReviews: &someGoodTokens{suffix: "good"}, SubjectAccessReviews: allowAll{}, Verb: "post", Path: path, Audience: "settlements", Lifetime: lifetime,
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	if _, err := guard.Check(t.Context(), peer, jwt(`{"aud":["settlements"]}`, "good")); !errors.Is(err, authz.ErrUnauthenticated) {
		t.Errorf("Check: %v, want ErrUnauthenticated", err)
	}
}

// Who watches the outage of the Kubernetes API must not be locked out by it.
func TestCheck_AllowedInOutage(t *testing.T) {
	const grace = time.Hour
	f := newFixture(t)
	reader, dismissed := f.account("reader"), f.account("dismissed")
	f.allow("reader", "/internal/v1/sessions/*")
	f.allow("dismissed", "/internal/v1/sessions/*")
	guard := f.guard(func(o *authz.Options) { o.Grace = grace })
	check := func(when, token string, want error) {
		t.Helper()
		account, err := guard.Check(t.Context(), peer, token)
		if !errors.Is(err, want) || (err == nil) != strings.HasPrefix(account, "system:serviceaccount:"+f.namespace+":") {
			t.Errorf("%s: %q, %v; want %v", when, account, err, want)
		}
	}
	check("in peace", reader, nil)
	check("in peace", dismissed, nil)
	f.disallow("dismissed")
	f.advance(lifetime)
	check("in peace, without the right", dismissed, authz.ErrForbidden)
	check("in peace", reader, nil)

	f.cut.Store(true)
	f.advance(lifetime)
	check("in an outage", reader, nil)
	check("in an outage, without the right", dismissed, authz.ErrUnavailable)
	check("in an outage, never seen before", jwt(`{}`, "c"), authz.ErrUnavailable)
	f.advance(grace - time.Second)
	check("just within the grace", reader, nil)
	f.advance(time.Second)
	check("after the grace", reader, authz.ErrUnavailable)
	f.cut.Store(false)
	check("in peace again", reader, nil)
}
