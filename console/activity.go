package console

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
func (c *console) recentActivity(ctx context.Context, merchant *v1alpha1.Merchant, keys []keyRow) ([]activity, error) {
	ours := map[types.UID]string{merchant.UID: ""}
	for i := range keys {
		ours[keys[i].UID] = keys[i].Name
	}
	var lists [2][]activity
	reads, ctx := errgroup.WithContext(ctx)
	for i, kind := range []string{"Merchant", "ApiKey"} {
		reads.Go(func() (err error) {
			lists[i], err = c.readActivity(ctx, merchant.Namespace, kind, ours)
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, kubernetesError("list Events", err)
	}
	found := slices.Concat(lists[:]...)
	slices.SortStableFunc(found, func(a, b activity) int { return b.Time.Compare(a.Time) })
	return found[:min(len(found), maxActivity)], nil
}

// readActivity reads the Events about objects of a kind, of those whose UIDs are given with their names.
func (c *console) readActivity(ctx context.Context, namespace, kind string, ours map[types.UID]string) ([]activity, error) {
	var found []activity
	options := client.ListOptions{Namespace: namespace, Limit: eventsPage}
	client.MatchingFields{"regarding.kind": kind}.ApplyToList(&options)
	for range maxEvents / eventsPage {
		var page eventsv1.EventList
		if err := c.kube.List(ctx, &page, &options); err != nil {
			return nil, err
		}
		for i := range page.Items {
			event := &page.Items[i]
			object, ok := ours[event.Regarding.UID]
			if text := activityText(event); ok && text != "" {
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

// activityWords are by the reason of an Event. What is not here is of use to the platform team only.
var activityWords = map[string]string{
	actionIssue:         "A new key was issued",
	actionRotate:        "The key was replaced",
	actionDisable:       "The key was switched off",
	actionEnable:        "The key was switched on again",
	actionDelete:        "The key was deleted",
	actionEditAllowlist: "The allowlist was changed",
	actionEditWebhook:   "The webhook was changed",
	actionResumeWebhook: "The webhook was switched on again",
	actionRotateSigning: "A new signing secret was asked for",
	actionResend:        "Events were sent again",
	actionSendTest:      "A test event was sent",

	"Rotated":           "A new key was issued",
	"KeyLost":           "The key was lost and no longer works",
	"ExpiringSoon":      "The key expires soon",
	"RotatingSoon":      "The key will be replaced soon",
	"Expired":           "The key has expired",
	"Disabled":          "The key was switched off",
	"MerchantSuspended": "The platform team has suspended the merchant",
	"MerchantClosed":    "The platform team has closed the merchant",
	"EndpointGone":      "The webhook was switched off: your server answered that it is gone for good",
	"EndpointDisabled":  "The webhook was switched off: your server has accepted nothing for days",
	"Healthy":           "Your server accepts events again",
	"EndpointChanged":   "The webhook was changed; nothing was sent to it since",
	"SigningSecretLost": "The signing secret was lost and replaced: your server needs the new one",
}

// webhookReasons are why a webhook fails. The page says more of it under Webhook.
var webhookReasons = []string{
	"AddressRefused", "URLRefused", "TLSFailed", "Redirected", "Rejected", "RetryLater", "ServerError", "InvalidAnswer", "NoAnswer", "Timeout",
	"NameNotResolved", "ConnectionFailed", "DeliveryFailed",
}

// activityText is what an Event is to a shop owner; empty: nothing.
func activityText(e *eventsv1.Event) string {
	words := activityWords[e.Reason]
	switch {
	case words == "" && e.Type == corev1.EventTypeWarning && slices.Contains(webhookReasons, e.Reason):
		return "Your server does not accept events"
	case words == "" || e.ReportingController != fieldOwner:
		return words
	}
	if _, who, named := strings.Cut(e.Note, " by "); named {
		if at := strings.LastIndex(who, " (generation"); at > 0 {
			words += " by " + who[:at]
		}
	}
	return words
}
