package merchants

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/budget"
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
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.ConfigMap{}, budget.SubjectField, budget.SubjectValues).
		WithIndex(&corev1.Secret{}, budget.ReplacedField, budget.ReplacedValues).Build()
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
		Secrets:    tenantsecret.Secrets{Client: stored, APIReader: apiReader, Cache: noneDelivered{}},
		Tombstones: budget.New(stored, apiReader, "credentials"),
		Clock:      clocktesting.NewFakePassiveClock(now), ClockWrong: func() bool { return false }, CredentialsNamespace: "credentials",
	}}
}

// A merchant is suspended, or closed, also while its signing secret cannot be read.
func TestRestrictions_SigningSecretUnread(t *testing.T) {
	for name, deleted := range map[string]bool{"suspended": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			f := upToDate(t)
			f.configMap.Namespace = "credentials"
			f.merchant.Spec.State, f.merchant.Finalizers = v1alpha1.MerchantSuspended, []string{v1alpha1.Finalizer}
			r := newReconciler(t, f.configMap, f.merchant)
			if deleted {
				f.merchant.DeletionTimestamp = &metav1.Time{Time: now}
			}
			r.APIReader = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, secret := object.(*corev1.Secret); secret {
						return errors.New("the encryption of Secrets is away")
					}
					return c.Get(ctx, key, object, options...)
				},
			})
			restrictions := reconciler.Restrictions[*v1alpha1.Merchant, facts]{
				Driver: reconciler.Driver[*v1alpha1.Merchant, facts]{Base: r.Base, Kind: r},
			}
			_, err := restrictions.Reconcile(t.Context(), f.merchant)
			stored := new(corev1.ConfigMap)
			if gone := client.IgnoreNotFound(r.Client.Get(t.Context(), client.ObjectKeyFromObject(f.configMap), stored)); gone != nil {
				t.Fatal(gone)
			}
			if record, decodeErr := published.DecodeMerchant(stored); decodeErr == nil && record.State == v1alpha1.MerchantActive {
				t.Errorf("it is still Active: %v", err)
			}
		})
	}
}

// planned is what a reconciliation of a new Merchant plans.
func planned(t *testing.T, r *Reconciler, merchant *v1alpha1.Merchant) (*plan, error) {
	t.Helper()
	cached, err := r.ReadPublished(t.Context(), r.Cached(), merchant)
	if err != nil {
		t.Fatal(err)
	}
	return r.plan(t.Context(), cached, true)
}

// A Merchant is revoked although no Secret of its tenant can be read.
func TestRevoke_ReadsNothingOfTheTenant(t *testing.T) {
	f := upToDate(t)
	f.configMap.Namespace, f.signing.Namespace = "credentials", "credentials"
	r := newReconciler(t, f.configMap, f.signing)
	f.merchant.DeletionTimestamp, f.merchant.Finalizers = &metav1.Time{Time: now}, []string{v1alpha1.Finalizer}
	if _, err := r.Revoke(t.Context(), f.merchant); err != nil {
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

// A narrower allowlist is in force although no Secret of the tenant can be read or written, as a slow webhook there has it.
func TestRestrict_Allowlist(t *testing.T) {
	f := upToDate(t)
	f.configMap.Namespace = "credentials"
	f.merchant.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"}
	r := newReconciler(t, f.configMap, f.merchant)
	restrictions := reconciler.Restrictions[*v1alpha1.Merchant, facts]{
		Driver: reconciler.Driver[*v1alpha1.Merchant, facts]{Base: r.Base, Kind: r},
	}
	if _, err := restrictions.Reconcile(t.Context(), f.merchant); err != nil {
		t.Fatal(err)
	}
	stored := new(corev1.ConfigMap)
	if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(f.configMap), stored); err != nil {
		t.Fatal(err)
	}
	record, err := published.DecodeMerchant(stored)
	if err != nil || !slices.Equal(record.IPAllowlist, f.merchant.Spec.IPAllowlist) {
		t.Errorf("published: %v, %v", record.IPAllowlist, err)
	}
}

// deletedMerchants are the tombstones of so many Merchants of a namespace, one a second.
func deletedMerchants(t *testing.T, namespace string, count int) []client.Object {
	t.Helper()
	var all []client.Object
	for n := range count {
		uid := types.UID(fmt.Sprint(namespace, n))
		tombstone, err := published.EncodeTombstone("credentials", published.Tombstone{
			Kind: published.TombstoneMerchant, ID: published.ID(uid), EndedAt: now.Add(time.Duration(n-count) * time.Second),
			Source: published.Source{Namespace: namespace, Name: "coffee", UID: uid},
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tombstone)
	}
	return all
}

// A tenant creates and deletes Merchants without end, and removes the finalizers that would hold them. In the end no new one is published in its
// namespace; those that exist work on, and a neighbour's are published.
func TestPlan_FullNamespace(t *testing.T) {
	const most = 2 * budget.Tombstones
	f := upToDate(t)
	f.configMap.Namespace, f.signing.Namespace = "credentials", "credentials"
	f.merchant.Spec.Webhook = nil
	fresh, neighbour := merchant(), merchant()
	fresh.UID, neighbour.UID, neighbour.Namespace = "fresh", "neighbour", "others"
	fresh.Name = "fresh"
	objects := append(deletedMerchants(t, f.merchant.Namespace, most), f.configMap, f.signing, f.merchant, fresh, neighbour)
	r := newReconciler(t, objects...)
	for name, test := range map[string]struct {
		merchant *v1alpha1.Merchant
		want     string
	}{
		"a new Merchant":               {fresh, v1alpha1.ReasonTooManyDeleted},
		"a Merchant that is published": {f.merchant, v1alpha1.ReasonPublished},
		"a new Merchant of another":    {neighbour, v1alpha1.ReasonPublished},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := planned(t, r, test.merchant)
			if err != nil {
				t.Fatal(err)
			}
			outcome := outcomeFor(p.facts)
			if refused := test.want == v1alpha1.ReasonTooManyDeleted; outcome.Reason != test.want || refused != p.idle() {
				t.Errorf("idle: %t, %s: %s", p.idle(), outcome.Reason, outcome.Message)
			}
			if next := nextCheck(p.facts, outcome); !outcome.IsReady() && (next <= 0 || next > reconciler.HeldRecheck) {
				t.Errorf("looked at again after %s", next)
			}
		})
	}
}

// A Secret that a tenant plants for a new Merchant does not make it one that was published before.
func TestPlan_FullNamespace_Planted(t *testing.T) {
	fresh := merchant()
	fresh.UID, fresh.Spec.Webhook = "fresh", nil
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: fresh.Namespace, Name: "planted", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Merchant", UID: fresh.UID, Controller: new(true),
		}},
	}}
	r := newReconciler(t, append(deletedMerchants(t, fresh.Namespace, 2*budget.Tombstones), fresh, secret)...)
	r.Secrets.Cache, r.Secrets.APIReader = planted{secret: secret}, r.Client
	p, err := planned(t, r, fresh)
	if err == nil && p.publish != nil {
		t.Errorf("it is published: %s", outcomeFor(p.facts).Message)
	}
}

// planted is a cache with a Secret that looks delivered for the Merchant.
type planted struct {
	cache.Cache

	secret *corev1.Secret
}

func (p planted) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	secret := tenantsecret.Metadata()
	secret.ObjectMeta = p.secret.ObjectMeta
	return meta.SetList(list, []runtime.Object{secret})
}

// Of a Merchant that was published before this operator began, what is lost is published again, also in a full namespace.
func TestPlan_FullNamespace_Lost(t *testing.T) {
	lost := merchant()
	lost.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	r := newReconciler(t, append(deletedMerchants(t, lost.Namespace, 2*budget.Tombstones), lost)...)
	for reason, want := range map[string]bool{v1alpha1.ReasonPublished: true, v1alpha1.ReasonTooManyDeleted: false} {
		lost.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReadyCondition, Reason: reason}}
		p, err := planned(t, r, lost)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.publish != nil; got != want {
			t.Errorf("with the status %s it is published: %t", reason, got)
		}
	}
}
