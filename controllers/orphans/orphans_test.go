package orphans

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/budget"
	"github.com/merchant-operator/merchant-operator/controllers/index"
	"github.com/merchant-operator/merchant-operator/internal/auditlog"
)

const sourceUID types.UID = "0c3d9b1e-52f4-4b52-8a5e-6f1a2b3c4d5e"

var now = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// Records as the next version may write them: the envelope, and other shapes of all else.
func laterKey() *corev1.Secret {
	id := published.ID(sourceUID)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials, Name: published.KeyName(id), UID: "1", Labels: map[string]string{published.Label: published.LabelKey},
		},
		Type: published.KeySecretType,
		Data: map[string][]byte{"record.json": []byte(strings.NewReplacer("UID", string(sourceUID), "DIGEST", apikey.NewDigest("till").Hex(), `"ID"`, `"`+id+`"`).Replace(`{
			"version": 2, "keyID": "ID", "merchantID": "merchant2345", "source": {"namespace": "shops", "name": "till", "uid": "UID"},
			"generation": 1, "revision": 1767225600000, "current": {"digest": "DIGEST", "createdAt": "2026-01-01T00:00:00Z"},
			"state": "Active", "previous": {"count": 3}, "lastRotation": 7}`))},
	}
}

func laterMerchant() *corev1.ConfigMap {
	id := published.ID(sourceUID)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials, Name: published.MerchantName(id), UID: "2", Labels: map[string]string{published.Label: published.LabelMerchant},
		},
		Data: map[string]string{"merchant.json": strings.ReplaceAll(
			`{"version": 2, "merchantID": "ID", "namespace": "shops", "name": "coffee", "state": "Active", "rateLimit": 50}`, `"ID"`, `"`+id+`"`)},
	}
}

func laterWebhook() *corev1.Secret {
	id := published.ID(sourceUID)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: credentials, Name: published.WebhookName(id), UID: "3", Labels: map[string]string{published.Label: published.LabelWebhook},
		},
		Type: published.WebhookSecretType,
		Data: map[string][]byte{"webhook.json": []byte(strings.NewReplacer("UID", string(sourceUID), `"ID"`, `"`+id+`"`).Replace(
			`{"version": 2, "merchantID": "ID", "source": {"namespace": "shops", "name": "coffee", "uid": "UID"}, "current": ["sealed"]}`))},
	}
}

// newSweep is a sweeper over these objects, and the writes it made.
func newSweep(t *testing.T, objects ...client.Object) (Sweeper, *[]string) {
	t.Helper()
	writes := new([]string)
	note := func(verb string, object client.Object) {
		if object.GetLabels()[published.Label] == published.LabelTombstone {
			verb += " tombstone"
		}
		*writes = append(*writes, verb)
	}
	stored := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).
		WithIndex(&v1alpha1.ApiKey{}, index.ApiKeys.Field, index.ApiKeys.Values).
		WithIndex(&v1alpha1.Merchant{}, index.Merchants.Field, index.Merchants.Values).
		WithIndex(&corev1.Secret{}, claimKeyIndex, claimKey).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				note("create", object)
				return c.Create(ctx, object, options...)
			},
			Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
				note("update", object)
				return c.Update(ctx, object, options...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				note("delete", object)
				return c.Delete(ctx, object, options...)
			},
		}).Build()
	return Sweeper{
		Client: stored, APIReader: stored, Tombstones: budget.New(stored, stored, credentials), Clock: clocktesting.NewFakePassiveClock(now), CredentialsNamespace: credentials,
		Watched: func(string) bool { return true }, ClockWrong: func() bool { return false }, Audit: auditlog.New(slog.New(slog.DiscardHandler)),
	}, writes
}

// pass lets the controller of an object see it as it is stored.
func pass(t *testing.T, s Sweeper, object client.Object) {
	t.Helper()
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	var err error
	switch object := object.(type) {
	case *corev1.Secret:
		if object.Type == published.WebhookSecretType {
			_, err = webhooks{s}.Reconcile(t.Context(), object)
		} else {
			_, err = keys{s}.Reconcile(t.Context(), object)
		}
	case *corev1.ConfigMap:
		_, err = merchants{s}.Reconcile(t.Context(), object)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// After a rollback somebody deletes an ApiKey or a Merchant without its finalizer. Replicas follow the envelope of its record, so the key
// would go on.
func TestSweep_NextVersion(t *testing.T) {
	for name, object := range map[string]client.Object{"key": laterKey(), "merchant": laterMerchant()} {
		t.Run(name, func(t *testing.T) {
			s, writes := newSweep(t, object)
			pass(t, s, object)
			if want := []string{"update", "create tombstone", "delete"}; !slices.Equal(*writes, want) {
				t.Errorf("writes %q, want %q", *writes, want)
			}
			if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				t.Errorf("the record is there (%v)", err)
			}
		})
	}
}

// A signing secret of the next version whose Merchant is gone opens nothing that could be revoked; it is remembered and deleted.
func TestSweep_SigningSecretNextVersion(t *testing.T) {
	s, writes := newSweep(t, laterWebhook())
	pass(t, s, laterWebhook())
	if want := []string{"create tombstone", "delete"}; !slices.Equal(*writes, want) {
		t.Errorf("writes %q, want %q", *writes, want)
	}
}

// A record whose source exists stays, and one that does not say its source.
func TestSweep_NextVersionIsNoOrphan(t *testing.T) {
	unknown := laterWebhook()
	unknown.Data["webhook.json"] = []byte(strings.Replace(string(unknown.Data["webhook.json"]), `"name": "coffee",`, "", 1))
	nameless := laterMerchant()
	nameless.Data["merchant.json"] = strings.Replace(nameless.Data["merchant.json"], `"name": "coffee",`, "", 1)
	for name, test := range map[string]struct{ object, source client.Object }{
		"key":              {laterKey(), &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till", UID: sourceUID}}},
		"merchant":         {laterMerchant(), &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "coffee", UID: sourceUID}}},
		"signing secret":   {laterWebhook(), &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "coffee", UID: sourceUID}}},
		"without an owner": {unknown, &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "other", UID: "3"}}},
		"without a source": {nameless, &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "other", UID: "3"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, writes := newSweep(t, test.object, test.source)
			pass(t, s, test.object)
			if len(*writes) > 0 {
				t.Errorf("writes: %q", *writes)
			}
		})
	}
}

const credentials = "credentials"

// The turns of the queue, and the budgets of retries, are those of the tenants, although all records are in one namespace.
func TestSweeper_TenantOfRequest(t *testing.T) {
	key, merchant, webhook := laterKey(), laterMerchant(), laterWebhook()
	claim, tombstone := claimAndTombstone(t, published.Tombstone{
		Kind: published.TombstoneApiKey, ID: published.ID("uid"), Source: published.Source{Namespace: "shops", Name: "till", UID: "uid"},
		EndedAt: now,
	})
	s, _ := newSweep(t, key, merchant, webhook, claim, tombstone)
	for name, tc := range map[string]struct {
		tenant func(reconcile.Request) string
		object string
		want   string
	}{
		"a key":                   {s.tenantOfKey, key.Name, "shops"},
		"a key that is gone":      {s.tenantOfKey, published.KeyName(published.ID("another")), ""},
		"a merchant":              {s.tenantOfMerchant, merchant.Name, "shops"},
		"a merchant that is gone": {s.tenantOfMerchant, published.MerchantName(published.ID("another")), ""},
		"a signing secret":        {s.tenantOfWebhook, webhook.Name, "shops"},
		"a claim":                 {s.tenantOfClaim, claim.Name, "shops"},
		"a tombstone":             {s.tenantOfTombstone, tombstone.Name, "shops"},
	} {
		request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: credentials, Name: tc.object}}
		if got := tc.tenant(request); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Two controllers see a claim whose 90 days are over: one deletes it and its tombstone, the other looks whether it needs a tombstone.
// However their steps interleave, no new tombstone is left.
func TestClaims_ExpiredGetsNoSecondTombstone(t *testing.T) {
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
			Client: stored, APIReader: stored, Tombstones: budget.New(stored, stored, credentials), Clock: clocktesting.NewFakePassiveClock(ended.Expires()), CredentialsNamespace: credentials,
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
		Digest: apikey.NewDigest("the key from a vault of " + ended.ID), Source: ended.Source, KeyID: ended.ID, ClaimedAt: ended.EndedAt,
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
