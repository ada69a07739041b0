package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
)

// health is what a merchant sees of its endpoint: a condition and an event. The zero health is that of a merchant
// without a webhook, which has neither.
type health struct {
	healthy         bool
	since           time.Time
	reason, message string
}

// Reasons of the condition WebhookHealthy, and of the events.
const (
	reasonGone    = "EndpointGone"
	reasonFailing = "EndpointFailing"
	reasonResumed = "Resumed"
)

const resumeHint = "Events become dead letters until spec.webhook.url or spec.webhook.resumeTrigger changes."

func healthOf(endpoint endpoints.Endpoint, state outbox.EndpointState) health {
	switch {
	case endpoint.URL == "":
		return health{}
	case !state.Disabled():
		return health{true, state.ResumedAt, reasonResumed, "Events are sent to the endpoint again."}
	case state.Cause == outbox.EndpointGone:
		return health{false, state.DisabledAt, reasonGone, "The endpoint answered 410 Gone. " + resumeHint}
	}
	return health{false, state.DisabledAt, reasonFailing,
		"Every delivery attempt has failed since " + state.FailingSince.Format(time.RFC3339) + ". " + resumeHint}
}

// errMerchantGone says that the Merchant of an endpoint does not exist any more.
var errMerchantGone = errors.New("the Merchant is gone")

// reportHealth reports disabled endpoints, and resumes those with a new target. A failed report is repeated later, by
// this dispatcher or another one: Redis stores what has been reported.
func (d *dispatcher) reportHealth(ctx context.Context) (more bool, err error) {
	pending, err := d.pendingWork(ctx)
	if err != nil {
		return false, err
	}
	for _, work := range pending {
		if !work.Unhealthy {
			continue
		}
		states, err := d.outbox.UnhealthyEndpoints(ctx, work.Bucket)
		if err != nil {
			return false, err
		}
		for _, state := range states {
			resumed, err := d.reportEndpoint(ctx, state)
			if err != nil {
				return false, err
			}
			more = more || resumed
		}
	}
	return more, nil
}

// reportEndpoint resumes or reports an endpoint. If it is resumed, there is more to report. A webhook that was removed
// has a new target too: none. The error is of Redis.
func (d *dispatcher) reportEndpoint(ctx context.Context, state outbox.EndpointState) (resumed bool, err error) {
	endpoint := d.index.Endpoint(state.MerchantID)
	known := endpoint.State == endpoints.Published
	switch {
	case endpoint.State == endpoints.Undecodable:
		return false, nil
	case known && state.Disabled() && state.Target != endpoint.Target:
		return d.outbox.ResumeEndpoint(ctx, state.MerchantID, endpoint.Target)
	case state.Disabled() && state.Reported, known && endpoint.UID == "":
		return false, nil
	case known:
		if !d.report(ctx, endpoint, healthOf(endpoint, state)) {
			return false, nil
		}
	case state.Disabled():
		return false, nil // the merchant is unknown, perhaps not yet published
	}
	return false, d.outbox.EndpointReported(ctx, state)
}

// report reports the health of an endpoint, and whether that needs no repetition.
func (d *dispatcher) report(ctx context.Context, endpoint endpoints.Endpoint, h health) bool {
	err := d.reporter.Report(ctx, endpoint, h)
	switch {
	case err == nil:
		d.options.Log.Info("updated webhook health", "merchant", endpoint.Merchant.String(), "reason", h.reason)
	case errors.Is(err, errMerchantGone):
	case ctx.Err() != nil:
		return false
	default:
		d.options.Log.Error("could not update webhook health; retrying", "merchant", endpoint.Merchant.String(), "error", err)
		return false
	}
	return true
}

// fieldOwner owns the one condition that dispatchers write. All dispatchers share it.
const fieldOwner = "merchant-operator-dispatcher"

// reportTimeout bounds one report.
const reportTimeout = 10 * time.Second

// kubeReporter writes a condition of the Merchant and creates an event, and publishes last uses of keys.
type kubeReporter struct {
	client    client.Client
	identity  string // of this dispatcher, in events
	namespace string // of published objects
}

func newKubeReporter(cluster *rest.Config, identity, namespace string) (*kubeReporter, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, eventsv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("create a Kubernetes client: %w", err)
		}
	}
	kube, err := client.New(cluster, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	return &kubeReporter{kube, identity, namespace}, nil
}

// Report may be repeated, also by another dispatcher: the condition stays as it is, and there is one event. The error is
// errMerchantGone if the Merchant does not exist any more.
func (r *kubeReporter) Report(ctx context.Context, endpoint endpoints.Endpoint, h health) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := r.writeCondition(ctx, endpoint, h); err != nil || h == (health{}) {
		return err
	}
	err := r.client.Create(ctx, r.event(endpoint, h))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create an event: %w", err)
	}
	return nil
}

// writeCondition applies the condition that dispatchers own, or removes it.
func (r *kubeReporter) writeCondition(ctx context.Context, endpoint endpoints.Endpoint, h health) error {
	status := v1alpha1ac.MerchantStatus()
	if h != (health{}) {
		healthy := metav1.ConditionFalse
		if h.healthy {
			healthy = metav1.ConditionTrue
		}
		status.WithConditions(metav1ac.Condition().
			WithType(v1alpha1.WebhookHealthyCondition).
			WithStatus(healthy).
			WithReason(h.reason).
			WithMessage(h.message).
			WithLastTransitionTime(metav1.NewTime(h.since)))
	}
	merchant, err := r.sameMerchant(ctx, endpoint)
	if err != nil {
		return err
	}
	apply := v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithResourceVersion(merchant.ResourceVersion).WithStatus(status)
	if err := r.client.Status().Apply(ctx, apply, client.ForceOwnership, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("write the condition %s: %w", v1alpha1.WebhookHealthyCondition, err)
	}
	return nil
}

// sameMerchant returns the metadata of the endpoint's Merchant, or errMerchantGone, also if another one has its name now.
// The API server ignores a UID in an apply to a custom resource's status, so a patch that only tests the UID goes first.
// It writes nothing, and needs no right to read Merchants.
func (r *kubeReporter) sameMerchant(ctx context.Context, endpoint endpoints.Endpoint) (*v1alpha1.Merchant, error) {
	test, err := json.Marshal([]map[string]string{{"op": "test", "path": "/metadata/uid", "value": string(endpoint.UID)}})
	if err != nil {
		return nil, err
	}
	merchant := &v1alpha1.Merchant{}
	merchant.Namespace, merchant.Name = endpoint.Merchant.Namespace, endpoint.Merchant.Name
	err = r.client.Status().Patch(ctx, merchant, client.RawPatch(types.JSONPatchType, test))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		return nil, errMerchantGone
	case err != nil:
		return nil, fmt.Errorf("find the Merchant: %w", err)
	}
	return merchant, nil
}

// event has a name derived from its content, so that it is created once.
func (r *kubeReporter) event(endpoint endpoints.Endpoint, h health) *eventsv1.Event {
	kind, action := corev1.EventTypeWarning, "Disable"
	if h.healthy {
		kind, action = corev1.EventTypeNormal, "Resume"
	}
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: endpoint.Merchant.Namespace,
			Name:      fmt.Sprintf("%s.%s.%x", endpoint.Merchant.Name, endpoint.MerchantID, h.since.UnixMilli()),
		},
		EventTime:           metav1.NewMicroTime(h.since),
		ReportingController: fieldOwner,
		ReportingInstance:   r.identity,
		Type:                kind,
		Reason:              h.reason,
		Action:              action,
		Note:                h.message,
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(),
			Kind:       "Merchant",
			Namespace:  endpoint.Merchant.Namespace,
			Name:       endpoint.Merchant.Name,
			UID:        endpoint.UID,
		},
	}
}
