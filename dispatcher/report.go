package dispatcher

import (
	"context"
	"encoding/json"
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
	if err := r.writeCondition(ctx, endpoint, h); err != nil || h == (health{}) {
		return err
	}
	err := r.client.Create(ctx, r.event(endpoint, h))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create an event: %w", err)
	}
	return nil
}

// writeCondition applies the one condition that dispatchers own, or takes it back.
func (r *kubeReporter) writeCondition(ctx context.Context, endpoint endpoints.Endpoint, h health) error {
	status := v1alpha1ac.MerchantStatus()
	if h != (health{}) {
		truth := metav1.ConditionFalse
		if h.healthy {
			truth = metav1.ConditionTrue
		}
		status.WithConditions(metav1ac.Condition().
			WithType(v1alpha1.WebhookHealthyCondition).
			WithStatus(truth).
			WithReason(h.reason).
			WithMessage(h.message).
			WithLastTransitionTime(metav1.NewTime(h.since)))
	}
	seen, err := r.sameMerchant(ctx, endpoint)
	if err != nil {
		return err
	}
	apply := v1alpha1ac.Merchant(seen.Name, seen.Namespace).WithResourceVersion(seen.ResourceVersion).WithStatus(status)
	if err := r.client.Status().Apply(ctx, apply, client.ForceOwnership, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("write the condition %s: %w", v1alpha1.WebhookHealthyCondition, err)
	}
	return nil
}

// sameMerchant returns the metadata of the Merchant whose endpoint it is. The error is errNoMerchant when that is gone
// or another one has its name now. The API server ignores a UID in what is applied to the status of a custom resource,
// so a patch that only tests it stands before; it writes nothing, and no right to read Merchants is needed.
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
		return nil, errNoMerchant
	case err != nil:
		return nil, fmt.Errorf("look for the Merchant: %w", err)
	}
	return merchant, nil
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
