package webhook

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/webhook/endpoints"
)

// fieldOwner owns the one condition that dispatchers write. It is the same for all of them.
const fieldOwner = "merchant-operator-dispatcher"

// reportTimeout bounds one report.
const reportTimeout = 10 * time.Second

// kubeReporter tells people through the Kubernetes API: with a condition of the Merchant, and an event.
type kubeReporter struct {
	client client.Client
	// instance is this dispatcher, for the events.
	instance string
}

func newKubeReporter(cluster *rest.Config, instance string) (*kubeReporter, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, eventsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make a Kubernetes client: %w", err)
		}
	}
	kube, err := client.New(cluster, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a Kubernetes client: %w", err)
	}
	return &kubeReporter{kube, instance}, nil
}

// Report may be called again for the same news, by this dispatcher or another one: the condition stays as it is, and
// there is one event. The error is errNoMerchant when there is nobody to tell.
func (r *kubeReporter) Report(ctx context.Context, endpoint endpoints.Endpoint, h health) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if err := r.writeCondition(ctx, endpoint, h); err != nil {
		return err
	}
	err := r.client.Create(ctx, r.event(endpoint, h))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create an event: %w", err)
	}
	return nil
}

func (r *kubeReporter) writeCondition(ctx context.Context, endpoint endpoints.Endpoint, h health) error {
	status := metav1.ConditionFalse
	if h.healthy {
		status = metav1.ConditionTrue
	}
	// The UID keeps the status from an object that was created under the same name since.
	apply := v1alpha1ac.Merchant(endpoint.Merchant.Name, endpoint.Merchant.Namespace).WithUID(endpoint.UID).
		WithStatus(v1alpha1ac.MerchantStatus().WithConditions(metav1ac.Condition().
			WithType(v1alpha1.WebhookHealthyCondition).
			WithStatus(status).
			WithReason(h.reason).
			WithMessage(h.message).
			WithLastTransitionTime(metav1.NewTime(h.since))))
	err := r.client.Status().Apply(ctx, apply, client.ForceOwnership, client.FieldOwner(fieldOwner))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another one
		return errNoMerchant
	case err != nil:
		return fmt.Errorf("write the condition %s: %w", v1alpha1.WebhookHealthyCondition, err)
	}
	return nil
}

// event has a name that is derived from the news.
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
		ReportingInstance:   r.instance,
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
