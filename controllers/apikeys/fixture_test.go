package apikeys

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/budget"
	"github.com/merchant-operator/merchant-operator/controllers/lastuse"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
	"github.com/merchant-operator/merchant-operator/controllers/tenantsecret"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const (
	thisUID      = "0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e"
	thisMerchant = "merchant2345"
)

// upToDate are the facts of a key at rest: generation 2 of it is published, delivered and reported.
func upToDate() facts {
	f := facts{
		now: now, times: DefaultOldKeyTimes(),
		apiKey: &v1alpha1.ApiKey{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till", UID: thisUID, Generation: 5},
			Spec: v1alpha1.ApiKeySpec{
				MerchantRef: v1alpha1.MerchantReference{Name: "coffee"},
				State:       v1alpha1.ApiKeyActive,
				Rotation:    v1alpha1.Rotation{Trigger: "a", OverlapSeconds: new(int32(3600))},
			},
			Status: v1alpha1.ApiKeyStatus{ObservedGeneration: 5, KeyGeneration: 2, Prefix: "mk_live_x"},
		},
		merchantID: thisMerchant, merchantState: v1alpha1.MerchantActive,
		secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: published.KeyName(published.ID(thisUID)), Labels: map[string]string{published.Label: published.LabelKey},
		}},
		record: &published.KeyRecord{
			Version:        1,
			KeyID:          published.ID(thisUID),
			MerchantID:     thisMerchant,
			Source:         published.Source{Namespace: "shops", Name: "till", UID: thisUID},
			Generation:     2,
			Revision:       7,
			Current:        published.Current{Digest: apikey.NewDigest("current"), Prefix: "mk_live_x", CreatedAt: now.Add(-time.Hour)},
			State:          v1alpha1.ApiKeyActive,
			LastRotation:   published.RotationEvent{Time: now.Add(-time.Hour), Cause: v1alpha1.RotationTrigger},
			HandledTrigger: "a",
		},
	}
	return f.with(deliveredSecret("till-key", 2))
}

// deliveredSecret is one of this ApiKey's, holding that generation of the key.
func deliveredSecret(name string, generation int64) delivered {
	return delivered{metav1.ObjectMeta{
		Namespace: "shops", Name: name, Annotations: map[string]string{GenerationAnnotation: strconv.FormatInt(generation, 10)},
	}}
}

func (f facts) with(secrets ...delivered) facts {
	f.delivered = secrets
	return f
}

// external makes the key an externally generated one.
func (f facts) external(key string) facts {
	digest := apikey.NewDigest(key)
	f.digest = &digest
	f.record.HandledDigest = &digest
	f.delivered = nil
	return f
}

// undelivered makes the policy of delivery None. The key in force was issued over HTTP.
func (f facts) undelivered() facts {
	f.apiKey.Spec.Delivery = &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}
	f.apiKey.Spec.Rotation.Trigger, f.record.HandledTrigger = "", ""
	f.record.LastRotation.Cause = v1alpha1.RotationAPI
	f.delivered = nil
	return f
}

// unissued makes the key one that nobody has.
func (f facts) unissued() facts {
	f = f.undelivered()
	f.record.Current, f.record.LastRotation.Cause = published.Placeholder(now.Add(-time.Hour)), v1alpha1.RotationInitial
	f.apiKey.Status.Prefix = ""
	return f
}

// lost takes the published Secret away, which this operator sees.
func (f facts) lost() facts {
	f.seen = knownVersion{version{f.record.Order(), f.record.Generation}, true}
	f.secret, f.record = nil, nil
	return f
}

// frozen is a Reconciler over these objects. It reads them from the API server, and what happens before each read is in before.
func frozen(t *testing.T, clock *clocktesting.FakePassiveClock, before func(stored client.Client, read client.ObjectKey), objects ...client.Object) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.ConfigMap{}, budget.SubjectField, budget.SubjectValues).
		WithIndex(&corev1.Secret{}, budget.ReplacedField, budget.ReplacedValues).
		WithIndex(&corev1.Secret{}, digestIndex, recordDigests).WithIndex(&corev1.Secret{}, claimOwnerIndex, claimOwner).Build()
	apiReader := interceptor.NewClient(stored, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			before(stored, key)
			return c.Get(ctx, key, object, options...)
		},
	})
	return &Reconciler{
		Base: &reconciler.Base{
			Client: stored, APIReader: apiReader, Events: events.NewFakeRecorder(9), Audit: auditlog.New(slog.New(slog.DiscardHandler)),
			Secrets:    tenantsecret.Secrets{Client: stored, APIReader: apiReader, Cache: noneDelivered{}},
			Tombstones: budget.New(stored, apiReader, "credentials"),
			Clock:      clock, ClockWrong: func() bool { return false }, CredentialsNamespace: "credentials",
		},
		LastUses: lastuse.New(stored, "credentials"), OldKeys: DefaultOldKeyTimes(), unpublished: lru.New(1),
	}
}

// planned is what a reconciliation of an ApiKey that has the finalizer plans.
func planned(t *testing.T, r *Reconciler, apiKey *v1alpha1.ApiKey) (*plan, error) {
	t.Helper()
	cached, err := r.ReadPublished(t.Context(), r.Cached(), apiKey)
	if err != nil {
		t.Fatal(err)
	}
	return r.plan(t.Context(), cached, false)
}

// gathered are the facts from the API server.
func gathered(t *testing.T, r *Reconciler, apiKey *v1alpha1.ApiKey) (facts, error) {
	t.Helper()
	f, err := r.ReadPublished(t.Context(), r.Uncached(), apiKey)
	if err != nil {
		return f, err
	}
	return r.gather(t.Context(), r.Uncached(), f)
}

// noneDelivered is a cache that has not heard of any delivered Secret yet.
type noneDelivered struct{ cache.Cache }

func (noneDelivered) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// oneDelivered is a cache that has the metadata of Secret till-key.
type oneDelivered struct{ cache.Cache }

func (oneDelivered) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	secret := tenantsecret.Metadata()
	secret.ObjectMeta = deliveredSecret("till-key", 2).ObjectMeta
	secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ApiKey", UID: thisUID, Controller: new(true)}}
	return meta.SetList(list, []runtime.Object{secret})
}

// stored are the objects of facts, as the API server has them.
func stored(t *testing.T, f facts) []client.Object {
	t.Helper()
	secret, err := published.EncodeKey("credentials", *f.record)
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{f.apiKey, secret, &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "coffee", UID: "merchant"}, Spec: v1alpha1.MerchantSpec{State: v1alpha1.MerchantActive},
	}}
	for _, d := range f.delivered {
		d.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ApiKey", Name: f.apiKey.Name, UID: f.apiKey.UID, Controller: new(true),
		}}
		objects = append(objects, &corev1.Secret{ObjectMeta: d.ObjectMeta})
	}
	return objects
}
