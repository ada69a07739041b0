package orphans

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/controllers/budget"
)

// endedKey is the tombstone of an ApiKey of a Merchant, that many seconds after the start.
func endedKey(namespace, merchant string, seconds int) published.Tombstone {
	uid := types.UID(namespace + merchant + strconv.Itoa(seconds))
	return published.Tombstone{
		Kind: published.TombstoneApiKey, ID: published.ID(uid), MerchantID: published.ID(types.UID(merchant)),
		Source:  published.Source{Namespace: namespace, Name: "till", UID: uid},
		EndedAt: start.Add(time.Duration(seconds) * time.Second),
	}
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newTombstones returns the controller for tombstones, with these objects in the cache.
func newTombstones(t *testing.T, objects ...client.Object) tombstones {
	t.Helper()
	stored := newCache(t).WithObjects(objects...).Build()
	return tombstones{Sweeper{
		Client: stored, APIReader: stored, Tombstones: budget.New(stored, stored, credentials), Clock: clocktesting.NewFakePassiveClock(start.Add(time.Hour)), CredentialsNamespace: credentials,
		Watched: func(string) bool { return true }, ClockWrong: func() bool { return false },
	}}
}

// newCache returns a client with the indexes of the operator's cache.
func newCache(t *testing.T) *fake.ClientBuilder {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(scheme(t)).
		WithIndex(&corev1.Secret{}, claimKeyIndex, claimKey).
		WithIndex(&corev1.ConfigMap{}, budget.SubjectField, budget.SubjectValues).
		WithIndex(&corev1.Secret{}, budget.ReplacedField, budget.ReplacedValues)
}

// there reports whether the object is stored.
func there(t *testing.T, s tombstones, object client.Object) bool {
	t.Helper()
	err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// A tenant creates and deletes more ApiKeys of its Merchant than a namespace may leave tombstones. Its own oldest ones are forgotten, with
// their claims. What a neighbour has deleted before stays remembered: in the same namespace and in another.
func TestTombstones_Neighbour(t *testing.T) {
	const surplus = 3
	merchant := endedKey("shops", "victim", 0)
	merchant.Kind, merchant.MerchantID = published.TombstoneMerchant, ""
	victims := map[string]published.Tombstone{
		"a Merchant of the namespace":               merchant,
		"an ApiKey of another Merchant":             endedKey("shops", "victim", 1),
		"an ApiKey of another namespace":            endedKey("others", "victim", 2),
		"an ApiKey whose key was replaced":          endedKey("shops", "victim", 3),
		"an ApiKey of the same Merchant, likewise":  endedKey("shops", "attacker", 4),
		"an ApiKey whose Merchant nobody remembers": endedKey("shops", "", 5),
	}
	var objects []client.Object
	remembered := map[string][]client.Object{}
	for name, ended := range victims {
		claim, tombstone := claimAndTombstone(t, ended)
		if strings.Contains(name, "likewise") || strings.Contains(name, "replaced") {
			retire(t, claim)
		}
		remembered[name] = []client.Object{tombstone}
		if ended.Kind == published.TombstoneApiKey {
			remembered[name] = append(remembered[name], claim)
		}
		objects = append(objects, remembered[name]...)
	}
	var attackers []client.Object
	oldest, _ := claimAndTombstone(t, endedKey("shops", "attacker", 10))
	for n := range budget.Tombstones + surplus {
		_, tombstone := claimAndTombstone(t, endedKey("shops", "attacker", 10+n))
		attackers = append(attackers, tombstone)
	}
	s := newTombstones(t, append(append(objects, attackers...), oldest)...)
	for range 2 { // the second time there is nothing to do
		if _, err := s.Reconcile(t.Context(), attackers[len(attackers)-1].(*corev1.ConfigMap)); err != nil {
			t.Fatal(err)
		}
	}
	for name, objects := range remembered {
		for _, object := range objects {
			if !there(t, s, object) {
				t.Errorf("%s: %s is forgotten", name, object.GetName())
			}
		}
	}
	forgotten := 0
	for n, tombstone := range attackers {
		if there(t, s, tombstone) {
			continue
		}
		if forgotten++; n >= forgotten {
			t.Errorf("tombstone %d of the attacker is forgotten before an older one", n)
		}
	}
	if forgotten < surplus || forgotten > surplus+len(victims) || there(t, s, oldest) {
		t.Errorf("%d tombstones of the attacker are forgotten; the claim of the oldest is there: %t", forgotten, there(t, s, oldest))
	}
}

// retire marks a claim to a key that another one has replaced.
func retire(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	claim, err := published.DecodeDigestClaim(secret)
	if err != nil {
		t.Fatal(err)
	}
	claim.Replaced = true
	retired, err := published.EncodeDigestClaim(secret.Namespace, claim)
	if err != nil {
		t.Fatal(err)
	}
	secret.Data = retired.Data
}

// The clock was years ahead when the reconciliation began, and is set right before the answer with which the clocks are compared.
func TestTombstones_ClockSetRight(t *testing.T) {
	right := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	_, tombstone := claimAndTombstone(t, published.Tombstone{
		Kind: published.TombstoneApiKey, ID: published.ID("uid"), Source: published.Source{Namespace: "shops", Name: "till", UID: "uid"},
		EndedAt: right.Add(-time.Hour),
	})
	clock := clocktesting.NewFakePassiveClock(right.AddDate(3, 0, 0))
	stored := newCache(t).WithObjects(tombstone).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key types.NamespacedName, object client.Object, options ...client.GetOption) error {
				clock.SetTime(right)
				return c.Get(ctx, key, object, options...)
			},
		}).Build()
	sweeper := Sweeper{
		Client: stored, APIReader: stored, Tombstones: budget.New(stored, stored, credentials), Clock: clock, CredentialsNamespace: credentials,
		Watched: func(string) bool { return true }, ClockWrong: func() bool { return !clock.Now().Equal(right) },
	}
	if _, err := (tombstones{sweeper}).Reconcile(t.Context(), tombstone); err != nil {
		t.Fatal(err)
	}
	if err := stored.Get(t.Context(), client.ObjectKeyFromObject(tombstone), new(corev1.ConfigMap)); err != nil {
		t.Errorf("the tombstone: %v", err)
	}
}
