package apikeys

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/budget"
	"github.com/merchant-operator/merchant-operator/controllers/reconciler"
)

// A process that is frozen while it reads sees what others did meanwhile. By the time before that, the new key would be older than the one
// that it replaces, which replicas would go on to accept.
func TestGather_TimeOfTheFacts(t *testing.T) {
	const away = time.Hour
	for name, test := range map[string]struct {
		frozenAt string
		gather   func(*Reconciler, facts) (facts, error)
	}{
		"all facts, frozen at the record": {
			published.KeyName(published.ID(thisUID)),
			func(r *Reconciler, f facts) (facts, error) { return gathered(t, r, f.apiKey) },
		},
		"all facts, frozen at the delivered Secret": {
			"till-key",
			func(r *Reconciler, f facts) (facts, error) { return gathered(t, r, f.apiKey) },
		},
		"a restriction": {
			published.KeyName(published.ID(thisUID)),
			func(r *Reconciler, f facts) (facts, error) {
				return r.ReadPublished(t.Context(), r.Uncached(), f.apiKey)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock, wrong, f := clocktesting.NewFakePassiveClock(now), false, upToDate()
			r := frozen(t, clock, func(_ client.Client, read client.ObjectKey) {
				if read.Name == test.frozenAt {
					clock.SetTime(now.Add(away))
					wrong = true
				}
			}, stored(t, f)...)
			r.ClockWrong = func() bool { return wrong }
			f, err := test.gather(r, f)
			if err != nil {
				t.Fatal(err)
			}
			if !f.now.Equal(now.Add(away)) || !f.clockWrong {
				t.Errorf("the time is %s after %s of reading, wrong: %t", f.now, away, f.clockWrong)
			}
		})
	}
}

// A process is frozen while it reads the facts from the API server. Meanwhile the spec gets another digest, which another operator publishes,
// and that key is replaced over HTTP. The digest that the spec had before must not be published over it.
func TestPlan_FrozenBeforeTheRecord(t *testing.T) {
	before, wanted, after := apikey.NewDigest("before"), apikey.NewDigest("wanted"), apikey.NewDigest("after")
	current := published.Current{Digest: apikey.NewDigest("over HTTP"), Prefix: "mk_live_x", CreatedAt: now}
	record := published.KeyName(published.ID(thisUID))
	for _, frozenAt := range []string{record, "till", "coffee", published.DigestClaimName(wanted)} {
		t.Run(frozenAt, func(t *testing.T) {
			f := upToDate()
			f.record.MerchantID, f.record.HandledDigest, f.delivered = published.ID("merchant"), &before, nil
			f.apiKey.Spec.Rotation, f.apiKey.Spec.KeyDigest = v1alpha1.Rotation{}, wanted.Hex()
			f.record.HandledTrigger = ""
			objects := stored(t, f)
			for _, digest := range []apikey.Digest{before, wanted, after} {
				claim, err := published.EncodeDigestClaim("credentials", published.DigestClaim{
					Digest: digest, Source: f.record.Source, KeyID: f.record.KeyID, ClaimedAt: now,
				})
				if err != nil {
					t.Fatal(err)
				}
				objects = append(objects, claim)
			}
			once := false
			r := frozen(t, clocktesting.NewFakePassiveClock(now), func(stored client.Client, key client.ObjectKey) {
				if key.Name != frozenAt || once {
					return
				}
				once = true
				apiKey, secret := new(v1alpha1.ApiKey), new(corev1.Secret)
				read(t, stored, client.ObjectKeyFromObject(f.apiKey), apiKey)
				apiKey.Spec.KeyDigest = after.Hex()
				write(t, stored, apiKey)
				next := f.record.Rotated(current, v1alpha1.RotationAPI, 0, now)
				next.HandledDigest = &after
				read(t, stored, client.ObjectKey{Namespace: "credentials", Name: record}, secret)
				update, err := published.EncodeKey("credentials", next)
				if err != nil {
					t.Fatal(err)
				}
				secret.Data = update.Data
				write(t, stored, secret)
			}, objects...)
			var err error
			if r.Metrics, err = NewMetrics(prometheus.NewRegistry()); err != nil {
				t.Fatal(err)
			}
			read(t, r.Client, client.ObjectKeyFromObject(f.apiKey), f.apiKey)
			p, err := planned(t, r, f.apiKey)
			if err == nil {
				_, err = r.apply(t.Context(), p)
			}
			if err != nil && !reconciler.Superseded(err) {
				t.Error(err)
			}
			secret := new(corev1.Secret)
			read(t, r.Client, client.ObjectKey{Namespace: "credentials", Name: record}, secret)
			if got, err := published.DecodeKey(secret); err != nil || !got.Current.Digest.Equal(current.Digest) {
				t.Errorf("the key is replaced by one of generation %d with the cause %s, %v", got.Generation, got.LastRotation.Cause, err)
			}
		})
	}
}

// The state of a Merchant is the one by which replicas of the API judge, whatever version of the operator published it.
func TestPublishedStateIn(t *testing.T) {
	record := published.NewMerchantRecord(&v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "coffee", UID: "merchant"},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "Acme Coffee", State: v1alpha1.MerchantActive, Currency: "EUR", RateLimit: v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
			Sessions: v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
		},
	})
	for name, test := range map[string]struct {
		replace []string
		edit    func(*corev1.ConfigMap)
		want    v1alpha1.MerchantState
	}{
		"active":                       {want: v1alpha1.MerchantActive},
		"suspended":                    {replace: []string{`"Active"`, `"Suspended"`}, want: v1alpha1.MerchantSuspended},
		"revoked":                      {replace: []string{`"version":1`, `"version":1,"revoked":true`}, want: v1alpha1.MerchantSuspended},
		"of a newer version":           {replace: []string{`"version":1`, `"version":2`}, want: v1alpha1.MerchantActive},
		"closed, of a newer version":   {replace: []string{`"version":1`, `"version":2`, `"Active"`, `"Closed"`}, want: v1alpha1.MerchantClosed},
		"unreadable":                   {replace: []string{`"version":1`, `"version":`}},
		"being deleted, with a holder": {edit: func(c *corev1.ConfigMap) { c.DeletionTimestamp = new(metav1.NewTime(now)) }},
	} {
		t.Run(name, func(t *testing.T) {
			configMap, err := published.EncodeMerchant("credentials", record)
			if err != nil {
				t.Fatal(err)
			}
			configMap.Data["merchant.json"] = strings.NewReplacer(test.replace...).Replace(configMap.Data["merchant.json"])
			if test.edit != nil {
				test.edit(configMap)
			}
			if got := publishedStateIn(configMap); got != test.want {
				t.Errorf("state %q, want %q", got, test.want)
			}
		})
	}
}

// A tenant changes the digests of its ApiKeys again and again, and deletes them: each digest leaves a claim. With too many claims in a
// namespace its ApiKeys claim no other digest, and keep the keys in force. A neighbour's ApiKey claims its digest.
func TestPlan_FullOfClaims(t *testing.T) {
	wanted := apikey.NewDigest("wanted")
	for namespace, want := range map[string]bool{"shops": true, "others": false} {
		t.Run(namespace, func(t *testing.T) {
			f := upToDate()
			f.record.MerchantID, f.delivered = published.ID("merchant"), nil
			f.apiKey.Spec.Rotation, f.apiKey.Spec.KeyDigest, f.record.HandledTrigger = v1alpha1.Rotation{}, wanted.Hex(), ""
			r := frozen(t, clocktesting.NewFakePassiveClock(now), func(client.Client, client.ObjectKey) {},
				append(stored(t, f), deletedWithClaims(t, namespace, 2*budget.Tombstones)...)...)
			read(t, r.Client, client.ObjectKeyFromObject(f.apiKey), f.apiKey)
			p, err := planned(t, r, f.apiKey)
			if err != nil {
				t.Fatal(err)
			}
			outcome := outcomeFor(p.facts)
			refused := outcome.Reason == v1alpha1.ReasonTooManyKeyDigests
			if refused != want || refused != (p.newKey == nil) || refused != (len(p.claims) == 0) {
				t.Errorf("%s: %s; a new key: %t, claims: %d", outcome.Reason, outcome.Message, p.newKey != nil, len(p.claims))
			}
		})
	}
}

// A Secret that a tenant plants for a new ApiKey does not make it one that was published before.
func TestPlan_FullNamespace_Planted(t *testing.T) {
	f := upToDate()
	objects := append(deletedWithClaims(t, f.apiKey.Namespace, 2*budget.Tombstones), stored(t, f)...)
	r := frozen(t, clocktesting.NewFakePassiveClock(now), func(client.Client, client.ObjectKey) {}, objects...)
	if err := r.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "credentials", Name: published.KeyName(published.ID(f.apiKey.UID)),
	}}); err != nil {
		t.Fatal(err)
	}
	r.Secrets.Cache = oneDelivered{}
	read(t, r.Client, client.ObjectKeyFromObject(f.apiKey), f.apiKey)
	f.apiKey.Status.Conditions = nil
	p, err := planned(t, r, f.apiKey)
	if err != nil || p.newKey != nil {
		t.Errorf("a key is issued: %s, %v", outcomeFor(p.facts).Message, err)
	}
}

// deletedWithClaims are the tombstones of ApiKeys of a namespace, and so many claims to their replaced keys.
func deletedWithClaims(t *testing.T, namespace string, claims int) (all []client.Object) {
	t.Helper()
	for n := range claims {
		uid := types.UID(fmt.Sprint("deleted ", n/maxClaims))
		source := published.Source{Namespace: namespace, Name: string(uid), UID: uid}
		claim, err := published.EncodeDigestClaim("credentials", published.DigestClaim{
			Digest: apikey.NewDigest(fmt.Sprint(n)), Source: source, KeyID: published.ID(uid), ClaimedAt: now, Replaced: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, claim)
		if n%maxClaims != 0 {
			continue
		}
		tombstone, err := published.EncodeTombstone("credentials", published.Tombstone{
			Kind: published.TombstoneApiKey, ID: published.ID(uid), EndedAt: now, Source: source, MerchantID: published.ID("merchant"),
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tombstone)
	}
	return all
}
