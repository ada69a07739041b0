package orphans

import (
	"context"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// A tenant who creates and deletes ApiKeys for hours leaves 1,000 tombstones: the newest ones. Claims end with their tombstones, and those of
// another namespace stay.
func TestTombstones_BoundPerNamespace(t *testing.T) {
	const surplus = 3
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ended := func(namespace string, i int) published.Tombstone {
		uid := types.UID(namespace + strconv.Itoa(i))
		return published.Tombstone{
			Kind: published.TombstoneApiKey, ID: published.ID(uid),
			Source:  published.Source{Namespace: namespace, Name: "till", UID: uid},
			EndedAt: start.Add(time.Duration(i) * time.Second),
		}
	}
	claim, _ := claimAndTombstone(t, ended("shops", 0))
	objects := []client.Object{claim}
	var names []string
	add := func(namespace string, i int) {
		_, tombstone := claimAndTombstone(t, ended(namespace, i))
		objects, names = append(objects, tombstone), append(names, tombstone.Name)
	}
	for i := range maxTombstones + surplus {
		add("shops", i)
	}
	add("others", 0)
	stored := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).
		WithIndex(&corev1.Secret{}, claimKeyIndex, claimKey).WithIndex(&corev1.ConfigMap{}, tombstoneIndex, tombstoneNamespace).Build()
	sweeper := Sweeper{
		Client: stored, APIReader: stored, Clock: clocktesting.NewFakePassiveClock(start.Add(time.Hour)), CredentialsNamespace: credentials,
		Watched: func(string) bool { return true }, ClockWrong: func() bool { return false },
	}
	for range 2 { // the second time there is nothing to do
		if _, err := (tombstones{sweeper}).Reconcile(t.Context(), objects[len(objects)/2].(*corev1.ConfigMap)); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range names {
		err := stored.Get(t.Context(), client.ObjectKey{Namespace: credentials, Name: name}, new(corev1.ConfigMap))
		if gone := apierrors.IsNotFound(err); gone != (i < surplus) {
			t.Errorf("tombstone %d of %d is gone: %t (%v)", i+1, len(names), gone, err)
		}
	}
	if err := stored.Get(t.Context(), client.ObjectKeyFromObject(claim), new(corev1.Secret)); !apierrors.IsNotFound(err) {
		t.Errorf("the claim of the oldest one is there: %v", err)
	}
}

// The clock was years ahead when the reconciliation began, and is set right before the answer with which the clocks are compared.
func TestTombstones_ClockSetRight(t *testing.T) {
	right := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	_, tombstone := claimAndTombstone(t, published.Tombstone{
		Kind: published.TombstoneApiKey, ID: published.ID("uid"), Source: published.Source{Namespace: "shops", Name: "till", UID: "uid"},
		EndedAt: right.Add(-time.Hour),
	})
	clock := clocktesting.NewFakePassiveClock(right.AddDate(3, 0, 0))
	stored := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(tombstone).
		WithIndex(&corev1.Secret{}, claimKeyIndex, claimKey).WithIndex(&corev1.ConfigMap{}, tombstoneIndex, tombstoneNamespace).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key types.NamespacedName, object client.Object, options ...client.GetOption) error {
				clock.SetTime(right)
				return c.Get(ctx, key, object, options...)
			},
		}).Build()
	sweeper := Sweeper{
		Client: stored, APIReader: stored, Clock: clock, CredentialsNamespace: credentials,
		Watched: func(string) bool { return true }, ClockWrong: func() bool { return !clock.Now().Equal(right) },
	}
	if _, err := (tombstones{sweeper}).Reconcile(t.Context(), tombstone); err != nil {
		t.Fatal(err)
	}
	if err := stored.Get(t.Context(), client.ObjectKeyFromObject(tombstone), new(corev1.ConfigMap)); err != nil {
		t.Errorf("the tombstone: %v", err)
	}
}
