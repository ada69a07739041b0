// Package audit records what people do in the console: in a metric, in the log, and as Events of the objects.
package audit

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	ActionIssue         = "IssueKey"
	ActionRotate        = "RotateKey"
	ActionDisable       = "DisableKey"
	ActionEnable        = "EnableKey"
	ActionDelete        = "DeleteKey"
	ActionEditAllowlist = "EditAllowlist"
	ActionEditWebhook   = "EditWebhook"
	ActionResumeWebhook = "ResumeWebhook"
	ActionRotateSigning = "RotateWebhookSecret"
	ActionResend        = "ResendDeadLetters"
	ActionSendTest      = "SendTestEvent"
	ActionRefund        = "RefundPayment"
)

// Results of an action.
const (
	actionDone   = "done"
	actionFailed = "failed"
)

func actions() []string {
	return []string{
		ActionIssue, ActionRotate, ActionDisable, ActionEnable, ActionDelete, ActionEditAllowlist, ActionEditWebhook, ActionResumeWebhook, ActionRotateSigning,
		ActionResend, ActionSendTest, ActionRefund,
	}
}

// Entry is what a person has done, or tried to do, to an object.
type Entry struct {
	Viewer login.Person
	Action string
	Object client.Object
	// ID is the id of the key, of the merchant or of the refund.
	ID string
	// Generation is the generation of the key, or of the Merchant's spec, after the action.
	Generation int64
	// Err is why the action failed.
	Err error
}

// Timeout bounds the writing of one Event, which goes on if the person leaves.
const Timeout = 5 * time.Second

// Recorder records actions. It is safe for concurrent use.
type Recorder struct {
	events  client.Writer
	actions *prometheus.CounterVec
	log     *slog.Logger
	now     func() time.Time
}

// New returns a Recorder that writes Events with the writer.
func New(events client.Writer, registerer prometheus.Registerer, log *slog.Logger, now func() time.Time) *Recorder {
	r := &Recorder{
		events: events, log: log, now: now,
		actions: promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "merchant_operator_console_actions_total",
			Help: "What people did in the console, by action and result: done or failed.",
		}, []string{"action", "result"}),
	}
	for _, action := range actions() {
		r.actions.WithLabelValues(action, actionDone)
		r.actions.WithLabelValues(action, actionFailed)
	}
	return r
}

// Record counts an action. If it was done, it is logged and an Event says so; when that fails the action is not undone.
func (r *Recorder) Record(ctx context.Context, e Entry) {
	result := actionDone
	if e.Err != nil {
		result = actionFailed
	}
	r.actions.WithLabelValues(e.Action, result).Inc()
	if e.Err != nil {
		r.log.Warn("action failed", "action", e.Action, "user", e.Viewer.User, "namespace", e.Object.GetNamespace(), "name", e.Object.GetName(), "error", e.Err)
		return
	}
	r.log.Info("action", "action", e.Action, "id", e.ID, "user", e.Viewer.User, "namespace", e.Object.GetNamespace(), "name", e.Object.GetName(), "generation", e.Generation)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	kind := "Merchant"
	if _, isKey := e.Object.(*v1alpha1.ApiKey); isKey {
		kind = "ApiKey"
	}
	written := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: e.Object.GetNamespace(), GenerateName: "console-"},
		EventTime:           metav1.NewMicroTime(r.now()),
		ReportingController: objects.FieldOwner,
		ReportingInstance:   objects.FieldOwner,
		Type:                corev1.EventTypeNormal,
		Reason:              e.Action,
		Action:              e.Action,
		Note:                fmt.Sprintf("%s: %s by %s (generation %d)", e.Action, cmp.Or(e.ID, e.Object.GetName()), e.Viewer.User, e.Generation),
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind,
			Namespace: e.Object.GetNamespace(), Name: e.Object.GetName(), UID: e.Object.GetUID(),
		},
	}
	if err := r.events.Create(ctx, written); err != nil {
		r.log.Error("could not create an Event", "action", e.Action, "user", e.Viewer.User, "error", err)
	}
}
