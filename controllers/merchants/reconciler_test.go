package merchants

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

// noneDelivered is a cache that has no delivered Secret.
type noneDelivered struct{ cache.Cache }

func (noneDelivered) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// newReconciler returns a Reconciler over these objects. Outside the credentials namespace no Secret can be read.
func newReconciler(t *testing.T, objects ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	apiReader := interceptor.NewClient(stored, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, secret := object.(*corev1.Secret); secret && key.Namespace != "credentials" {
				return context.DeadlineExceeded
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	return &Reconciler{Base: &reconciler.Base{
		Client: stored, APIReader: apiReader, Events: events.NewFakeRecorder(9), Audit: auditlog.New(slog.New(slog.DiscardHandler)),
		Secrets: tenantsecret.Secrets{Client: stored, APIReader: apiReader, Cache: noneDelivered{}},
		Clock:   clocktesting.NewFakePassiveClock(now), ClockWrong: func() bool { return false }, CredentialsNamespace: "credentials",
	}}
}

// A Merchant is revoked although no Secret of its tenant can be read.
func TestRevoke_ReadsNothingOfTheTenant(t *testing.T) {
	f := upToDate(t)
	f.configMap.Namespace, f.signing.Namespace = "credentials", "credentials"
	r := newReconciler(t, f.configMap, f.signing)
	f.merchant.DeletionTimestamp, f.merchant.Finalizers = &metav1.Time{Time: now}, []string{v1alpha1.Finalizer}
	if _, err := r.revoke(t.Context(), f.merchant); err != nil {
		t.Errorf("the revocation: %v", err)
	}
	id := published.ID(f.merchant.UID)
	for name, object := range map[string]client.Object{published.MerchantName(id): &corev1.ConfigMap{}, published.WebhookName(id): &corev1.Secret{}} {
		if err := r.Client.Get(t.Context(), client.ObjectKey{Namespace: "credentials", Name: name}, object); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%s is still published: %v", name, err)
		}
	}
	tombstone := client.ObjectKey{Namespace: "credentials", Name: published.MerchantTombstoneName(id)}
	if err := r.Client.Get(t.Context(), tombstone, &corev1.ConfigMap{}); err != nil {
		t.Errorf("the tombstone: %v", err)
	}
}
