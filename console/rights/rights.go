// Package rights asks the Kubernetes API what a person may do to a Merchant. It alone decides that.
package rights

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/internal/authz"
)

// Verbs: what a person may do to a Merchant. All but get are custom verbs: nobody has them by accident.
const (
	Get            = "get"
	ViewPayments   = "viewpayments"
	RefundPayments = "refundpayments"
	IssueKeys      = "issuekeys"
	RotateKeys     = "rotatekeys"
	EditAllowlist  = "editallowlist"
	EditWebhook    = "editwebhook"
)

// NewSubject returns the person as the Kubernetes API knows them. Everybody who has signed in is in system:authenticated.
func NewSubject(p login.Person) authz.Subject {
	return authz.NewSubject(p.User, append([]string{"system:authenticated"}, p.Groups...))
}

// newListSubject returns NewSubject with the budget of lists, which is no other person's: a user's name is printable.
func newListSubject(p login.Person) authz.Subject {
	subject := NewSubject(p)
	subject.Budget += "\x00list"
	return subject
}

// ErrNone means that the person may see the Merchant, and not do this.
var ErrNone = errors.New("no right")

// Reviewer reviews the rights of people. It is safe for concurrent use. Its methods return the errors of authz.Reviewer.
type Reviewer struct {
	Reviews *authz.Reviewer
}

// May reports whether a person has a verb on a Merchant; an empty name means all of the namespace, an empty namespace all.
func (v *Reviewer) May(ctx context.Context, subject authz.Subject, verb, namespace, name string) (bool, error) {
	return v.Reviews.May(ctx, subject, authorizationv1.ResourceAttributes{
		Verb: verb, Group: v1alpha1.SchemeGroupVersion.Group, Version: v1alpha1.SchemeGroupVersion.Version, Resource: "merchants",
		Namespace: namespace, Name: name,
	})
}

// Rights are what a person may do to one Merchant, for the page that offers it. The routes ask again.
type Rights struct{ ViewPayments, IssueKeys, RotateKeys, EditAllowlist, EditWebhook bool }

// Read returns what a person may do to a Merchant.
func (v *Reviewer) Read(ctx context.Context, p login.Person, merchant *v1alpha1.Merchant) (r Rights, err error) {
	subject := NewSubject(p)
	reviews, ctx := errgroup.WithContext(ctx)
	for verb, allowed := range map[string]*bool{
		ViewPayments: &r.ViewPayments, IssueKeys: &r.IssueKeys, RotateKeys: &r.RotateKeys,
		EditAllowlist: &r.EditAllowlist, EditWebhook: &r.EditWebhook,
	} {
		reviews.Go(func() (err error) {
			*allowed, err = v.May(ctx, subject, verb, merchant.Namespace, merchant.Name)
			return err
		})
	}
	return r, reviews.Wait()
}

const (
	// parallelReviews bounds what one page asks of the Kubernetes API at once.
	parallelReviews = 16
	// MaxSingleReviews bounds the reviews of single Merchants for one page, for people without a right on their namespaces.
	MaxSingleReviews = 300
)

// Visible returns those Merchants that the person may see, and whether some were left out unasked. One review decides for a
// namespace; single Merchants are reviewed only in namespaces without a right on all of them. Lists have a budget of reviews of their
// own, so that a person who may see a few of many Merchants can still open these.
func (v *Reviewer) Visible(ctx context.Context, p login.Person, all []*v1alpha1.Merchant) (seen []*v1alpha1.Merchant, incomplete bool, err error) {
	subject := newListSubject(p)
	var unasked atomic.Bool
	sees := func(ctx context.Context, namespace, name string) (bool, error) {
		allowed, err := v.May(ctx, subject, Get, namespace, name)
		if errors.Is(err, authz.ErrReviewBudget) {
			unasked.Store(true)
			err = nil
		}
		return allowed, err
	}
	if everything, err := sees(ctx, "", ""); err != nil || everything {
		return all, false, err
	}
	namespaces := map[string]*atomic.Bool{}
	for i := range all {
		if namespaces[all[i].Namespace] == nil {
			namespaces[all[i].Namespace] = new(atomic.Bool)
		}
	}
	reviews, reviewing := errgroup.WithContext(ctx)
	reviews.SetLimit(parallelReviews)
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) { // each page of a person with too many reviews shows the same ones
		reviews.Go(func() error {
			granted, err := sees(reviewing, namespace, "")
			namespaces[namespace].Store(granted)
			return err
		})
	}
	if err := reviews.Wait(); err != nil {
		return nil, false, err
	}

	allowed := make([]bool, len(all))
	var single []int
	for i := range all {
		if allowed[i] = namespaces[all[i].Namespace].Load(); !allowed[i] {
			single = append(single, i)
		}
	}
	if len(single) > MaxSingleReviews {
		unasked.Store(true)
		single = inTurn(single, func(i int) string { return all[i].Namespace })[:MaxSingleReviews]
	}
	reviews, reviewing = errgroup.WithContext(ctx)
	reviews.SetLimit(parallelReviews)
	for _, i := range single {
		reviews.Go(func() (err error) {
			allowed[i], err = sees(reviewing, all[i].Namespace, all[i].Name)
			return err
		})
	}
	if err := reviews.Wait(); err != nil {
		return nil, false, err
	}
	for i := range all {
		if allowed[i] {
			seen = append(seen, all[i])
		}
	}
	return seen, unasked.Load(), nil
}

// inTurn returns one Merchant of each namespace in turn, as long as it has some, in the order of the namespaces' names: a tenant with many Merchants, and
// with names that come first, hides none of another tenant.
func inTurn(merchants []int, namespaceOf func(int) string) []int {
	of := map[string][]int{}
	for _, i := range merchants {
		of[namespaceOf(i)] = append(of[namespaceOf(i)], i)
	}
	namespaces, turns := slices.Sorted(maps.Keys(of)), make([]int, 0, len(merchants))
	for turn := 0; len(turns) < len(merchants); turn++ {
		for _, namespace := range namespaces {
			if turn < len(of[namespace]) {
				turns = append(turns, of[namespace][turn])
			}
		}
	}
	return turns
}

// PaymentsVisible reports for each Merchant of a list whether it shows what was paid. One review decides for a namespace; single Merchants
// are reviewed only for people with few. A review over the budget is a no.
func (v *Reviewer) PaymentsVisible(ctx context.Context, p login.Person, merchants []*v1alpha1.Merchant, total int) ([]bool, error) {
	const few = 10
	subject := newListSubject(p)
	allowed, reviewed := make([]bool, len(merchants)), map[client.ObjectKey]*atomic.Bool{}
	review := func(keys []client.ObjectKey) error {
		reviews, ctx := errgroup.WithContext(ctx)
		reviews.SetLimit(parallelReviews)
		for _, key := range keys {
			if reviewed[key] != nil {
				continue
			}
			reviewed[key] = new(atomic.Bool)
			decision := reviewed[key]
			reviews.Go(func() error {
				may, err := v.May(ctx, subject, ViewPayments, key.Namespace, key.Name)
				if errors.Is(err, authz.ErrReviewBudget) {
					err = nil
				}
				decision.Store(may)
				return err
			})
		}
		return reviews.Wait()
	}
	var namespaces, single []client.ObjectKey
	for i := range merchants {
		namespaces = append(namespaces, client.ObjectKey{Namespace: merchants[i].Namespace})
	}
	if err := review(namespaces); err != nil {
		return nil, err
	}
	for i := range merchants {
		if !reviewed[namespaces[i]].Load() && total <= few {
			single = append(single, client.ObjectKeyFromObject(merchants[i]))
		}
	}
	if err := review(single); err != nil {
		return nil, err
	}
	for i := range merchants {
		own := reviewed[client.ObjectKeyFromObject(merchants[i])]
		allowed[i] = reviewed[namespaces[i]].Load() || own != nil && own.Load()
	}
	return allowed, nil
}
