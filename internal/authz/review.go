package authz

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
