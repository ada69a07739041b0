package railauth_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/merchant-operator/merchant-operator/apiserver/railauth"
)

// oneGoodToken knows a single account, fast enough for tens of thousands of questions.
type oneGoodToken struct {
	authenticationclient.TokenReviewInterface

	good  string
	asked int
}

func (o *oneGoodToken) Create(_ context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	o.asked++
	review.Status.Authenticated = review.Spec.Token == o.good
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
func TestAFloodOfBadTokens(t *testing.T) {
	tokens := &oneGoodToken{good: "good.good.good"}
	now := time.Now()
	guard := railauth.New(railauth.Options{
		Tokens: tokens, Access: allowAll{}, Path: path, Lifetime: lifetime,
		Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
	})
	check := func(token string, want error, asked int) {
		t.Helper()
		before := tokens.asked
		if err := guard.Check(t.Context(), token); !errors.Is(err, want) {
			t.Fatalf("%s: %v, want %v", token, err, want)
		}
		if got := tokens.asked - before; got != asked {
			t.Fatalf("%s: asked %d times, want %d", token, got, asked)
		}
	}
	check(tokens.good, nil, 1)
	for i := range 20_000 {
		check(fmt.Sprintf("bad.bad.%d", i), railauth.ErrUnauthenticated, 1)
	}
	check(tokens.good, nil, 0)
	check("bad.bad.19999", railauth.ErrUnauthenticated, 1) // there was no room for it
	now = now.Add(lifetime)
	check("bad.bad.19999", railauth.ErrUnauthenticated, 1)
	check("bad.bad.19999", railauth.ErrUnauthenticated, 0) // now there is
}
