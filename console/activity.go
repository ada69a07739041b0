package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
)

// Actions, in Events, in the log and in metrics.
const (
	actionIssue         = "IssueKey"
	actionRotate        = "RotateKey"
	actionDisable       = "DisableKey"
	actionDelete        = "DeleteKey"
	actionEditAllowlist = "EditAllowlist"
	actionEditWebhook   = "EditWebhook"
	actionResumeWebhook = "ResumeWebhook"
	actionRotateSigning = "RotateWebhookSecret"
	actionResend        = "ResendDeadLetters"
)

func actions() []string {
	return []string{
		actionIssue, actionRotate, actionDisable, actionDelete, actionEditAllowlist, actionEditWebhook, actionResumeWebhook, actionRotateSigning,
		actionResend,
	}
}

// event is what a person has done, or tried to do, to an object.
type event struct {
	who        login.Person
	action     string
	object     client.Object
	id         string // of the key or of the merchant
	generation int64  // of the key, or of the Merchant's spec, after the action
	err        error
}

// eventTimeout bounds the writing of one Event, which goes on if the person leaves.
const eventTimeout = 5 * time.Second

// record counts an action. If it was done, it is logged and an Event says so; when that fails the action is not undone.
func (c *console) record(ctx context.Context, e event) {
	result := actionDone
	if e.err != nil {
		result = actionFailed
	}
	c.metrics.actions.WithLabelValues(e.action, result).Inc()
	if e.err != nil {
		c.log.Warn("action failed", "action", e.action, "user", e.who.User, "namespace", e.object.GetNamespace(), "name", e.object.GetName(), "error", e.err)
		return
	}
	c.log.Info("action", "action", e.action, "user", e.who.User, "namespace", e.object.GetNamespace(), "name", e.object.GetName(), "generation", e.generation)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout)
	defer cancel()
	kind := "Merchant"
	if _, isKey := e.object.(*v1alpha1.ApiKey); isKey {
		kind = "ApiKey"
	}
	written := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: e.object.GetNamespace(), GenerateName: "console-"},
		EventTime:           metav1.NewMicroTime(c.now()),
		ReportingController: fieldOwner,
		ReportingInstance:   fieldOwner,
		Type:                corev1.EventTypeNormal,
		Reason:              e.action,
		Action:              e.action,
		Note:                fmt.Sprintf("%s: %s by %s (generation %d)", e.action, cmp.Or(e.id, e.object.GetName()), e.who.User, e.generation),
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind,
			Namespace: e.object.GetNamespace(), Name: e.object.GetName(), UID: e.object.GetUID(),
		},
	}
	if err := c.kube.Create(ctx, written); err != nil {
		c.log.Error("could not create an Event", "action", e.action, "user", e.who.User, "error", err)
	}
}

// activity is one Event about a Merchant or one of its keys. A cluster keeps Events for an hour, if it is not configured otherwise.
type activity struct {
	Time         time.Time
	Object, Text string
	Warning      bool
}

const (
	// maxActivity is how many Events the page shows.
	maxActivity = 12
	// maxEvents bounds what is read for that, eventsPage what of it is in memory as a tenant may have written it.
	maxEvents, eventsPage = 500, 20
)

// activityOf returns the newest Events of a Merchant and its keys, the newest first.
func (c *console) activityOf(ctx context.Context, merchant *v1alpha1.Merchant, keys []keyRow) ([]activity, error) {
	ours := map[types.UID]string{merchant.UID: "merchant"}
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
