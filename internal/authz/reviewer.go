package authz

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
)

// Reviewer asks the Kubernetes API what people may do, and caches the decisions. It is safe for concurrent use.
type Reviewer struct {
	reviews  authorizationclient.SubjectAccessReviewInterface
	lifetime time.Duration
	now      func() time.Time
	cache    *decisionCache
	flights  singleflight.Group
	budgets  *ratelimit.Limiter
}

// ReviewBudget limits the reviews of one Subject's budget.
var ReviewBudget = ratelimit.Policy{RequestsPerSecond: 10, Burst: 300}

// ErrReviewBudget means that the subject has used up its budget of reviews for now. Nothing is decided.
var ErrReviewBudget = errors.New("too many questions about the rights of one person")

// maxReviews limits the cache of a Reviewer: about 100 bytes each.
const maxReviews = 1 << 16

// NewReviewer returns a Reviewer with an empty cache, whose decisions are valid for the lifetime.
func NewReviewer(reviews authorizationclient.SubjectAccessReviewInterface, lifetime time.Duration, now func() time.Time) *Reviewer {
	return &Reviewer{
		reviews: reviews, lifetime: lifetime, now: now, cache: newDecisionCache(maxReviews, 0), budgets: ratelimit.NewLimiter(ReviewBudget, now),
	}
}

// Subject is a person with the names that RoleBindings use.
type Subject struct {
	User   string
	Groups []string
	// Budget is charged for the reviews about the subject.
	Budget string
	digest [sha256.Size]byte
}

// NewSubject returns the Subject of a user in groups.
func NewSubject(user string, groups []string) Subject {
	sorted := slices.Sorted(slices.Values(groups))
	return Subject{user, sorted, user, sha256.Sum256([]byte(user + "\x00" + strings.Join(sorted, "\x00")))}
}

// May reports whether the subject may do this. Without a name it means every object of the namespace; without a namespace, every
// namespace. The error is ErrUnavailable, ErrReviewBudget or that of ctx; nothing is decided then. Concurrent callers share one review.
func (r *Reviewer) May(ctx context.Context, subject Subject, attributes authorizationv1.ResourceAttributes) (bool, error) {
	digest := sha256.Sum256(slices.Concat(subject.digest[:], []byte(strings.Join([]string{
		attributes.Verb, attributes.Group, attributes.Resource, attributes.Namespace, attributes.Name,
	}, "\x00"))))
	if decided, known := r.cache.get(digest, r.now()); known {
		return decided.err == nil, nil
	}
	if _, allowed := r.budgets.Allow(subject.Budget); !allowed {
		return false, ErrReviewBudget
	}
	reviewed := r.flights.DoChan(string(digest[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		started := r.now()
		result, err := r.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: subject.User, Groups: subject.Groups, ResourceAttributes: &attributes,
		}}, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("%w: review the access of a person: %w", ErrUnavailable, err)
		}
		decided := decision{until: started.Add(r.lifetime)}
		if !result.Status.Allowed || result.Status.Denied {
			decided.err = ErrForbidden
		}
		r.cache.put(digest, decided, r.now())
		return decided.err == nil, nil
	})
	select {
	case result := <-reviewed:
		allowed, _ := result.Val.(bool)
		return allowed, result.Err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
