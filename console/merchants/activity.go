package merchants

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/objects"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// activity is one Event about a Merchant or one of its keys. A cluster keeps Events for an hour, if it is not configured otherwise.
type activity struct {
	Time    time.Time
	Object  string // name of the key; empty: the merchant
	Text    string
	Warning bool
}

const (
	// maxActivity is how many Events the page shows.
	maxActivity = 12
	// maxEvents bounds what is read for that, eventsPage what of it is in memory as a tenant may have written it.
	maxEvents, eventsPage = 500, 20
)

// recentActivity returns the newest Events of a Merchant and its keys, the newest first.
func (h *Handler) recentActivity(ctx context.Context, merchant *v1alpha1.Merchant, rows keys.Rows) ([]activity, error) {
	ours := map[types.UID]string{merchant.UID: ""}
	for i := range rows {
		ours[rows[i].UID] = rows[i].Name
	}
	var lists [2][]activity
	reads, ctx := errgroup.WithContext(ctx)
	for i, kind := range []string{"Merchant", "ApiKey"} {
		reads.Go(func() (err error) {
			lists[i], err = h.readActivity(ctx, merchant.Namespace, kind, ours)
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, objects.Error("list Events", err)
	}
	found := slices.Concat(lists[:]...)
	slices.SortStableFunc(found, func(a, b activity) int { return b.Time.Compare(a.Time) })
	return found[:min(len(found), maxActivity)], nil
}

// readActivity reads the Events about objects of a kind, of those whose UIDs are given with their names.
func (h *Handler) readActivity(ctx context.Context, namespace, kind string, ours map[types.UID]string) ([]activity, error) {
	var found []activity
	options := client.ListOptions{Namespace: namespace, Limit: eventsPage}
	client.MatchingFields{"regarding.kind": kind}.ApplyToList(&options)
	for range maxEvents / eventsPage {
		var page eventsv1.EventList
		if err := h.Objects.List(ctx, &page, &options); err != nil {
			return nil, err
		}
		for i := range page.Items {
			event := &page.Items[i]
			object, ok := ours[event.Regarding.UID]
			if text := activityText(h.Pages.Words(ctx), event); ok && text != "" {
				found = append(found, activity{lastTime(event), object, text, event.Type == corev1.EventTypeWarning})
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	return found, nil
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

// activityText is what an Event is to a shop owner; empty: nothing, it is of use to the platform team only.
func activityText(w web.Words, e *eventsv1.Event) string {
	key := "event." + e.Reason
	switch {
	case e.Type == corev1.EventTypeWarning && w.Known("failure."+e.Reason): // the page says more of it under Webhook
		return w.Text("activity.refused")
	case !w.Known(key):
		return ""
	case e.ReportingController != objects.FieldOwner:
		return w.Text(key)
	}
	if _, who, named := strings.Cut(e.Note, " by "); named {
		if at := strings.LastIndex(who, " (generation"); at > 0 {
			return w.Text("activity.by", w.Text(key), who[:at])
		}
	}
	return w.Text(key)
}
