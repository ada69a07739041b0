package console

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// activity is one Event about a Merchant or one of its keys. A cluster keeps Events for an hour, if it is not configured otherwise.
type activity struct {
	Time         time.Time
	Object, Note string
	Warning      bool
}

const (
	// maxActivity is how many Events the page shows.
	maxActivity = 20
	// maxEvents bounds what is read for that.
	maxEvents = 500
)

// activityOf returns the newest Events of a Merchant and its keys, the newest first.
func (c *console) activityOf(ctx context.Context, merchant *v1alpha1.Merchant, keys []v1alpha1.ApiKey) ([]activity, error) {
	ours := map[types.UID]string{merchant.UID: "merchant"}
	for i := range keys {
		ours[keys[i].UID] = keys[i].Name
	}
	var lists [2]eventsv1.EventList
	reads, ctx := errgroup.WithContext(ctx)
	for i, kind := range []string{"Merchant", "ApiKey"} {
		reads.Go(func() error {
			return c.kube.List(ctx, &lists[i], client.InNamespace(merchant.Namespace), client.MatchingFields{"regarding.kind": kind}, client.Limit(maxEvents))
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, kubernetesError("list Events", err)
	}
	var found []activity
	for _, list := range lists {
		for i := range list.Items {
			event := &list.Items[i]
			if object, ok := ours[event.Regarding.UID]; ok {
				found = append(found, activity{lastTime(event), object, event.Note, event.Type == "Warning"})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b activity) int { return b.Time.Compare(a.Time) })
	return found[:min(len(found), maxActivity)], nil
}

// lastTime is when an Event happened last.
func lastTime(event *eventsv1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	case !event.DeprecatedLastTimestamp.IsZero():
		return event.DeprecatedLastTimestamp.Time
	}
	return event.CreationTimestamp.Time
}
