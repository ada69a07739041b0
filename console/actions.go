package console

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/objects"
)

// Actions, in Events, in the log and in metrics.
const (
	actionIssue         = "IssueKey"
	actionRotate        = "RotateKey"
	actionDisable       = "DisableKey"
	actionEnable        = "EnableKey"
	actionDelete        = "DeleteKey"
	actionEditAllowlist = "EditAllowlist"
	actionEditWebhook   = "EditWebhook"
	actionResumeWebhook = "ResumeWebhook"
	actionRotateSigning = "RotateWebhookSecret"
	actionResend        = "ResendDeadLetters"
	actionSendTest      = "SendTestEvent"
)

// Results of an action.
const (
	actionDone   = "done"
	actionFailed = "failed"
)

func actions() []string {
	return []string{
		actionIssue, actionRotate, actionDisable, actionEnable, actionDelete, actionEditAllowlist, actionEditWebhook, actionResumeWebhook, actionRotateSigning,
		actionResend, actionSendTest,
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
		ReportingController: objects.FieldOwner,
		ReportingInstance:   objects.FieldOwner,
		Type:                corev1.EventTypeNormal,
		Reason:              e.action,
		Action:              e.action,
		Note:                fmt.Sprintf("%s: %s by %s (generation %d)", e.action, cmp.Or(e.id, e.object.GetName()), e.who.User, e.generation),
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind,
			Namespace: e.object.GetNamespace(), Name: e.object.GetName(), UID: e.object.GetUID(),
		},
	}
	if err := c.objects.Create(ctx, written); err != nil {
		c.log.Error("could not create an Event", "action", e.action, "user", e.who.User, "error", err)
	}
}
