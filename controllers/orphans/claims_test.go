package orphans

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/index"
)

const credentials = "credentials"

// Two controllers see a claim whose 90 days are over: one deletes it and its tombstone, the other looks whether it needs a tombstone.
// However their steps interleave, no new tombstone is left.
func TestAnExpiredClaimGetsNoSecondTombstone(t *testing.T) {
	ended := published.Tombstone{
		Kind: published.TombstoneApiKey, ID: published.ID("uid"),
		Source:  published.Source{Namespace: "shops", Name: "till", UID: "uid"},
		EndedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	for step := range 4 { // the number of reads before the other controller runs
		claim, tombstone := claimAndTombstone(t, ended)
		reads := 0
		var stored client.WithWatch
		expire := sync.OnceFunc(func() {
			for _, object := range []client.Object{claim.DeepCopy(), tombstone.DeepCopy()} {
				if err := stored.Delete(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
		})
		stored = fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(claim, tombstone).
			WithIndex(&v1alpha1.ApiKey{}, index.ApiKeys.Field, index.ApiKeys.Values).
			WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key types.NamespacedName, object client.Object, options ...client.GetOption) error {
					err := c.Get(ctx, key, object, options...)
					if reads++; reads > step {
						expire()
					}
					return err
				},
			}).Build()
		sweeper := Sweeper{
			Client: stored, Live: stored, Clock: clocktesting.NewFakePassiveClock(ended.Expires()), CredentialsNamespace: credentials,
			Watched: func(string) bool { return true }, ClockWrong: func() bool { return false },
		}
		if _, err := (claims{sweeper}).Reconcile(t.Context(), claim); err != nil {
			t.Fatalf("expired after read %d: %v", step+1, err)
		}
		expire() // if the reconciliation ended before that read
		err := stored.Get(t.Context(), client.ObjectKeyFromObject(tombstone), new(corev1.ConfigMap))
		if !apierrors.IsNotFound(err) {
			t.Errorf("expired after read %d: the tombstone is back (%v)", step+1, err)
		}
	}
}

func claimAndTombstone(t *testing.T, ended published.Tombstone) (*corev1.Secret, *corev1.ConfigMap) {
	t.Helper()
	claim, err := published.EncodeDigestClaim(credentials, published.DigestClaim{
		Digest: apikey.DigestOf("a key from a vault, with 32 characters"), Source: ended.Source, KeyID: ended.ID, ClaimedAt: ended.EndedAt,
	})
	if err != nil {
		t.Fatal(err)
	}
	tombstone, err := published.EncodeTombstone(credentials, ended)
	if err != nil {
		t.Fatal(err)
	}
	return claim, tombstone
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}
