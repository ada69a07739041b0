package status

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

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	v1alpha1ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/internal/kube"
)

const (
	// fieldOwner owns the condition and the part of status that dispatchers write. All dispatchers share it.
	fieldOwner = "merchant-operator-dispatcher"
	// testFieldOwner owns observedTestTrigger, and allowlistFieldOwner status.allowlist, which a report of health neither writes
	// nor removes.
	testFieldOwner      = fieldOwner + "-test"
	allowlistFieldOwner = fieldOwner + "-allowlist"
)

const (
	// reportTimeout bounds one report into a tenant's namespace, whose admission webhooks may be slow; see retries.
	reportTimeout = 5 * time.Second
	// publishTimeout bounds a read and a write of published last uses.
	publishTimeout = 10 * time.Second
)

// KubeWriter writes the status of Merchants and creates events, and publishes last uses of keys.
type KubeWriter struct {
	client    client.Client
	identity  string // of this dispatcher, in events
	namespace string // of published objects
}

// NewKubeWriter returns a KubeWriter. The identity names this dispatcher in events, the namespace has the published objects.
func NewKubeWriter(cluster *rest.Config, identity, namespace string) (*KubeWriter, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, eventsv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("create a Kubernetes client: %w", err)
		}
	}
	direct, err := client.New(cluster, client.Options{Scheme: scheme, Mapper: kube.NewMapper()})
	if err != nil {
		return nil, fmt.Errorf("create a Kubernetes client: %w", err)
	}
	return &KubeWriter{direct, identity, namespace}, nil
}

// Report may be repeated, also by another dispatcher: the status stays as it is, and there is one event. The error is
// ErrMerchantGone if the Merchant does not exist any more.
func (r *KubeWriter) Report(ctx context.Context, endpoint endpoints.Endpoint, report Report) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	merchant, err := r.sameMerchant(ctx, endpoint)
	if err != nil {
		return err
	}
	// The event goes first: between a status and the note of it in Redis, the endpoint's health may change again.
	if report.EventType != "" && endpoint.URL != "" {
		if err := r.client.Create(ctx, r.event(endpoint, report)); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create an event: %w", err)
		}
	}
	if err := r.applyStatus(ctx, merchant, fieldOwner, newMerchantStatus(report)); err != nil || endpoint.URL != "" {
		return err
	}
	return r.reportTest(ctx, endpoint, v1alpha1ac.MerchantStatus()) // nothing is left of the webhook
}

// ReportTest says in the status that the event of a test was queued. Errors are those of Report.
func (r *KubeWriter) ReportTest(ctx context.Context, endpoint endpoints.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	webhook := v1alpha1ac.WebhookStatus().WithObservedTestTrigger(endpoint.TestTrigger)
	return r.reportTest(ctx, endpoint, v1alpha1ac.MerchantStatus().WithWebhook(webhook))
}

func (r *KubeWriter) reportTest(ctx context.Context, endpoint endpoints.Endpoint, status *v1alpha1ac.MerchantStatusApplyConfiguration) error {
	merchant, err := r.sameMerchant(ctx, endpoint)
	if err != nil {
		return err
	}
	return r.applyStatus(ctx, merchant, testFieldOwner, status)
}

// ReportAllowlist writes the blocked addresses; nil: there are none. Errors are those of Report.
func (r *KubeWriter) ReportAllowlist(ctx context.Context, endpoint endpoints.Endpoint, blocked *v1alpha1.AllowlistStatus) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	merchant, err := r.sameMerchant(ctx, endpoint)
	if err != nil {
		return err
	}
	status := v1alpha1ac.MerchantStatus()
	if blocked != nil {
		list := v1alpha1ac.AllowlistStatus().WithOtherRequests(blocked.OtherRequests)
		for _, block := range blocked.Refused {
			row := v1alpha1ac.RefusedBlock().WithBlock(block.Block).WithRequests(block.Requests).WithLastSeen(block.LastSeen)
			if block.KeyID != "" {
				row.WithKeyID(block.KeyID)
			}
			list.WithRefused(row)
		}
		status.WithAllowlist(list)
	}
	return r.applyStatus(ctx, merchant, allowlistFieldOwner, status)
}

// newMerchantStatus returns the part of the status that dispatchers own.
func newMerchantStatus(report Report) *v1alpha1ac.MerchantStatusApplyConfiguration {
	status := v1alpha1ac.MerchantStatus()
	if report.Health == (Health{}) {
		return status
	}
	webhook := v1alpha1ac.WebhookStatus().WithPending(report.State.Pending).WithDead(report.State.Dead)
	if last := report.State.LastDelivery; !last.IsZero() {
		webhook.WithLastDelivery(v1alpha1ac.WebhookDelivery().WithTime(metav1.NewTime(last)))
	}
	if last := report.State.LastFailure; !last.Time.IsZero() {
		failure := v1alpha1ac.WebhookFailure().WithTime(metav1.NewTime(last.Time)).WithReason(last.Reason)
		if status := last.Status(); status != 0 {
			failure.WithStatusCode(status)
		}
		webhook.WithLastFailure(failure)
	}
	return status.WithWebhook(webhook).WithConditions(metav1ac.Condition().
		WithType(v1alpha1.WebhookHealthyCondition).
		WithStatus(report.Status).
		WithReason(report.Reason).
		WithMessage(report.Message).
		WithLastTransitionTime(metav1.NewTime(report.Since)))
}

func (r *KubeWriter) applyStatus(
	ctx context.Context, merchant *v1alpha1.Merchant, owner client.FieldOwner, status *v1alpha1ac.MerchantStatusApplyConfiguration,
) error {
	apply := v1alpha1ac.Merchant(merchant.Name, merchant.Namespace).WithResourceVersion(merchant.ResourceVersion).WithStatus(status)
	if err := r.client.Status().Apply(ctx, apply, client.ForceOwnership, owner); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// sameMerchant returns the metadata of the endpoint's Merchant, or ErrMerchantGone, also if another one has its name now.
// The API server ignores a UID in an apply to a custom resource's status, so a patch that only tests the UID goes first.
// It writes nothing, and needs no right to read Merchants.
func (r *KubeWriter) sameMerchant(ctx context.Context, endpoint endpoints.Endpoint) (*v1alpha1.Merchant, error) {
	test, err := json.Marshal([]map[string]string{{"op": "test", "path": "/metadata/uid", "value": string(endpoint.UID)}})
	if err != nil {
		return nil, err
	}
	merchant := &v1alpha1.Merchant{}
	merchant.Namespace, merchant.Name = endpoint.Merchant.Namespace, endpoint.Merchant.Name
	err = r.client.Status().Patch(ctx, merchant, client.RawPatch(types.JSONPatchType, test))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		return nil, ErrMerchantGone
	case err != nil:
		return nil, fmt.Errorf("find the Merchant: %w", err)
	}
	return merchant, nil
}

// event has a name derived from its content, so that it is created once.
func (r *KubeWriter) event(endpoint endpoints.Endpoint, report Report) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: endpoint.Merchant.Namespace,
			Name:      fmt.Sprintf("%s.%s.%x", endpoint.Merchant.Name, endpoint.MerchantID, report.Since.UnixMilli()),
		},
		EventTime:           metav1.NewMicroTime(report.Since),
		ReportingController: fieldOwner,
		ReportingInstance:   r.identity,
		Type:                report.EventType,
		Reason:              report.Reason,
		Action:              "Deliver",
		Note:                report.Message,
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.SchemeGroupVersion.String(),
			Kind:       "Merchant",
			Namespace:  endpoint.Merchant.Namespace,
			Name:       endpoint.Merchant.Name,
			UID:        endpoint.UID,
		},
	}
}

// LastUses returns what is published of a shard; none if the operator has not created it yet, or nobody of this version can read it.
func (r *KubeWriter) LastUses(ctx context.Context, shard int) (published.LastUses, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, uses, err := r.lastUses(ctx, shard)
	if errors.Is(err, published.ErrNewerVersion) {
		err = nil
	}
	return uses, err
}

// lastUses returns no ConfigMap if there is none, and no uses if they are damaged.
func (r *KubeWriter) lastUses(ctx context.Context, shard int) (*corev1.ConfigMap, published.LastUses, error) {
	configMap := new(corev1.ConfigMap)
	key := client.ObjectKey{Namespace: r.namespace, Name: published.LastUseName(shard)}
	if err := r.client.Get(ctx, key, configMap); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, published.LastUses{}, nil
		}
		return nil, published.LastUses{}, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	uses, err := published.DecodeLastUses(configMap)
	if err != nil && !errors.Is(err, published.ErrNewerVersion) {
		err = nil
	}
	return configMap, uses, err
}

// UpdateLastUses writes only over the version that next has seen. There is nothing to do without the ConfigMap, which the
// operator creates, or if a newer operator has written it.
func (r *KubeWriter) UpdateLastUses(ctx context.Context, shard int, next func(published.LastUses) (published.LastUses, bool)) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	configMap, current, err := r.lastUses(ctx, shard)
	switch {
	case errors.Is(err, published.ErrNewerVersion) || err == nil && configMap == nil:
		return nil
	case err != nil:
		return err
	}
	uses, write := next(current)
	if !write {
		return nil
	}
	want, err := published.EncodeLastUses(r.namespace, shard, uses)
	if err != nil {
		return err
	}
	want.UID, want.ResourceVersion = configMap.UID, configMap.ResourceVersion
	if err := r.client.Update(ctx, want, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", r.namespace, want.Name, err)
	}
	return nil
}
