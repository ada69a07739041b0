//go:build faults

package faults

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/budget"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// withdrawn is the time after which no replica accepts a key whose ApiKey or Merchant is being deleted.
const withdrawn = 10 * time.Second

// deletionFaults delete ApiKeys and Merchants from which a tenant has taken the operator's finalizer.
func deletionFaults() []fault {
	promised := fmt.Sprintf("no replica accepts the key after %s, also while the object has a finalizer", withdrawn)
	return []fault{
		{"P2", "finalizer removed, then deleted: the operator is down", promised + ", from the operator's start", tryStripped(operatorAway)},
		{"P2", "finalizer removed, then deleted: the operator is idle", promised, tryStripped(operatorIdle)},
		{"P2", "finalizer removed in a loop, then deleted", promised, tryStripped(strippedInLoop)},
		{"P2", "a published object is immutable", "the key is refused all the same", tryImmutable},
		{"P2", "a neighbour makes and deletes more ApiKeys than a namespace remembers", "a deleted Merchant's payment is to be refunded, a replaced key stays dead", tryDeletedFlood},
	}
}

type stripping int

const (
	operatorAway stripping = iota
	operatorIdle
	strippedInLoop
)

func tryStripped(how stripping) func(*testing.T) (int, string) {
	return func(t *testing.T) (int, string) {
		t.Helper()
		many := 10 * *intensity
		s := deploy(t, 2, 0)
		var doomed []client.Object
		var keys []string
		for n := range many {
			name := fmt.Sprintf("till-%d", n)
			merchant := s.Merchant(name)
			keys = append(keys, s.apiKey(name, name))
			apiKey := &v1alpha1.ApiKey{}
			s.must(shared.get(t.Context(), s.Namespace, name, apiKey))
			doomed = append(doomed, []client.Object{apiKey, merchant}[n%2])
		}
		if how == operatorAway {
			shared.operator.kill()
			t.Cleanup(func() {
				if shared.operator.running == nil {
					shared.operator.restart(t)
				}
			})
		}
		stop := func() {}
		if how == strippedInLoop {
			for _, object := range doomed {
				s.strip(object)
			}
			stop = callers(2, func(_ caller, n, step int) { s.strip(doomed[step%len(doomed)]) })
			defer stop()
		}
		for _, object := range doomed {
			s.strip(object) // at once, before the operator adds its finalizer again
			s.must(shared.Client.Delete(t.Context(), object))
		}
		if how == operatorAway {
			shared.operator.restart(t)
		}
		since := time.Now()
		for _, key := range keys {
			s.awaitRefused(key)
		}
		slowest := time.Since(since)
		if slowest > withdrawn {
			t.Errorf("the last key was refused after %s", slowest)
		}
		stop()
		for n, object := range doomed {
			s.must(shared.get(t.Context(), s.Namespace, object.GetName(), object)) // somebody still holds it
			s.awaitRefused(keys[n])
			s.must(shared.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		}
		return many, fmt.Sprintf("%d ApiKeys and Merchants deleted and still held, the last key refused by both replicas after %.1f s", many, slowest.Seconds())
	}
}

// tryImmutable ends keys whose published objects somebody with rights in the credentials namespace has made immutable.
func tryImmutable(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	freeze := func(object client.Object, name string) {
		object.SetNamespace(kubetest.CredentialsNamespace)
		object.SetName(name)
		s.must(shared.Client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"immutable":true}`))))
	}
	ends := []struct {
		name string
		end  func(key *v1alpha1.ApiKey, merchant *v1alpha1.Merchant)
		want int
	}{
		{"disabled", func(key *v1alpha1.ApiKey, _ *v1alpha1.Merchant) {
			edit(s, s.Namespace, key.Name, &v1alpha1.ApiKey{}, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		}, http.StatusUnauthorized},
		{"deleted", func(key *v1alpha1.ApiKey, _ *v1alpha1.Merchant) { s.must(shared.Client.Delete(t.Context(), key)) }, http.StatusUnauthorized},
		{"suspended", func(_ *v1alpha1.ApiKey, merchant *v1alpha1.Merchant) {
			edit(s, s.Namespace, merchant.Name, &v1alpha1.Merchant{}, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		}, http.StatusForbidden},
	}
	var slowest time.Duration
	for _, e := range ends {
		merchant := s.Merchant(e.name)
		plaintext := s.apiKey(e.name, e.name)
		key := &v1alpha1.ApiKey{}
		s.must(shared.get(t.Context(), s.Namespace, e.name, key))
		freeze(&corev1.Secret{}, published.KeyName(published.ID(key.UID)))
		freeze(&corev1.ConfigMap{}, published.MerchantName(published.ID(merchant.UID)))
		began := time.Now()
		e.end(key, merchant)
		for _, r := range s.replicas {
			s.refusedBy(r, plaintext, e.want)
		}
		slowest = max(slowest, time.Since(began))
	}
	if slowest > disabledWithin {
		t.Errorf("a key was accepted for %s", slowest)
	}
	return len(ends), fmt.Sprintf("disabled, deleted, suspended: refused by 2 replicas after %d ms at most", slowest.Milliseconds())
}

// tryDeletedFlood deletes a Merchant with a pending session, and an ApiKey whose external key was replaced over HTTP. Then another Merchant of
// the namespace leaves more tombstones of ApiKeys than the namespace may.
func tryDeletedFlood(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	closed := s.Merchant("closed")
	tillKey := s.apiKey("till", "closed")
	created := s.mustCall(http.StatusCreated, s.replicas[0].public, http.MethodPost, sessions, tillKey, `{"amountCents":1250}`)

	s.Merchant("coffee")
	const leaked = "a-key-from-a-vault-with-32-characters"
	vault := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "vault"},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "coffee"}, KeyDigest: apikey.NewDigest(leaked).Hex()},
	}
	again := vault.DeepCopy()
	s.must(shared.Client.Create(t.Context(), vault))
	for _, r := range s.replicas {
		s.accepts(r, leaked)
	}
	replacement := shared.secret(s.mustCall(http.StatusOK, s.replicas[0].public, http.MethodPost, rotate, leaked, "").Text("fullKey"))
	for _, object := range []client.Object{closed, vault} {
		s.Delete(object)
		s.Eventually(object.GetName()+" is gone", func() bool { return s.Gone(object) })
	}
	for _, dead := range []string{tillKey, leaked, replacement} {
		s.awaitRefused(dead)
	}

	s.Merchant("bait")
	many := budget.Tombstones + 50
	s.deleteKeys("bait", many)

	// A replica that starts now knows the deleted Merchant and the replaced key only by what is remembered of them.
	s.replicas[1].kill()
	s.replicas[1].restart(t)
	settlement := "/internal/v1/sessions/" + created.Text("sessionId") + "/settlement"
	got := s.mustCall(http.StatusOK, s.replicas[1].internal, http.MethodPost, settlement, s.railToken(),
		`{"paymentRef":"bank-1","outcome":"COMPLETED","amountCents":1250}`)
	if got.Body["applied"] != false || got.Text("action") != "REFUND_REQUIRED" {
		t.Errorf("the payment for a deleted Merchant got %s", got.Raw)
	}
	s.must(shared.Client.Create(t.Context(), again))
	s.observed(again)
	s.apiKey("later", "bait") // every replica accepts it, so what was published before is in force
	for _, dead := range []string{tillKey, leaked, replacement} {
		for _, r := range s.replicas {
			s.mustCall(http.StatusUnauthorized, r.public, http.MethodGet, me, dead, "")
		}
	}
	return many, fmt.Sprintf("%d ApiKeys made and deleted; the payment for the deleted Merchant is to be refunded, three dead keys get 401 from 2 replicas", many)
}

// deleteKeys makes and deletes so many ApiKeys, a few at a time.
func (s *deployment) deleteKeys(merchant string, many int) {
	s.t.Helper()
	const atOnce = 50
	for first := 0; first < many; first += atOnce {
		var keys []*v1alpha1.ApiKey
		for n := first; n < min(first+atOnce, many); n++ {
			key := &v1alpha1.ApiKey{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprint("flood-", n)},
				Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: merchant}, Delivery: &v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}},
			}
			s.must(shared.Client.Create(s.t.Context(), key))
			keys = append(keys, key)
		}
		for _, key := range keys {
			s.AwaitReady(key)
			s.Delete(key)
		}
		for _, key := range keys {
			s.Eventually(key.Name+" is gone", func() bool { return s.Gone(key) })
		}
	}
}

// strip replaces all finalizers of an object by the tenant's own.
func (s *deployment) strip(object client.Object) {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/theirs"]}}`))
	if err := shared.Client.Patch(s.t.Context(), object.DeepCopyObject().(client.Object), patch); err != nil {
		s.t.Error(err)
	}
}

// awaitRefused waits until no replica accepts the key.
func (s *deployment) awaitRefused(key string) {
	s.t.Helper()
	c := newCaller()
	defer c.http.CloseIdleConnections()
	for _, r := range s.replicas {
		eventuallySees(s.t, r.name+" refuses the key", func() (string, bool) {
			got, err := c.call(r.public, http.MethodGet, me, key, "")
			return fmt.Sprintf("%d, %v", got.Status, err), err == nil && got.Status == http.StatusUnauthorized
		})
	}
}

// disabledWithin is promise P2 for a key that is disabled.
const disabledWithin = 5 * time.Second

// hindrance is what a tenant does so that no key can be issued, before it disables its ApiKey with the trigger of a rotation.
type hindrance struct {
	name string
	do   func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey)
}

func hindrances() []hindrance {
	const last = 1<<53 - 1
	secretOf := func(key *v1alpha1.ApiKey) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-key"}}
	}
	patch := func(s *deployment, tenant client.Client, object client.Object, text string) {
		s.must(tenant.Patch(s.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))))
	}
	status := func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey, text string) {
		s.must(tenant.Status().Patch(s.t.Context(), key, client.RawPatch(types.MergePatchType, []byte(`{"status":`+text+`}`))))
	}
	plant := func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey, name string, kind corev1.SecretType) {
		s.must(tenant.Create(s.t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: key.Namespace, Name: name,
				Labels:          map[string]string{"merchant-operator.io/delivered": "key"},
				Annotations:     map[string]string{"merchant-operator.io/generation": fmt.Sprint(last)},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(key, v1alpha1.SchemeGroupVersion.WithKind("ApiKey"))},
			},
			Type: kind,
		}))
	}
	return []hindrance{
		{"immutable", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			patch(s, tenant, secretOf(key), `{"immutable":true}`)
		}},
		{"mistyped", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			s.must(tenant.Delete(s.t.Context(), secretOf(key)))
			plant(s, tenant, key, key.Name+"-key", "example.com/other")
		}},
		{"planted", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			plant(s, tenant, key, "planted", corev1.SecretTypeOpaque)
		}},
		{"generation", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			status(s, tenant, key, fmt.Sprintf(`{"keyGeneration":%d}`, last+1))
		}},
		{"year-9999", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			status(s, tenant, key, `{"keyGeneration":9,"lastRotation":{"time":"9999-12-31T23:59:59Z","cause":"API"}}`)
		}},
		{"held", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			patch(s, tenant, secretOf(key), `{"metadata":{"finalizers":["example.com/hold"]}}`)
			s.must(tenant.Delete(s.t.Context(), secretOf(key)))
			s.t.Cleanup(func() {
				unheld := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				s.must(shared.Client.Patch(context.Background(), secretOf(key), unheld))
			})
		}},
		{"quota", func(s *deployment, tenant client.Client, key *v1alpha1.ApiKey) {
			s.must(shared.Client.Create(s.t.Context(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "none"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("0")}},
			}))
			s.must(tenant.Delete(s.t.Context(), secretOf(key)))
		}},
	}
}

// tryDisabling disables keys that cannot be rotated, each in another way, with the trigger of a rotation in the same patch.
func tryDisabling(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	tenant, own := s.tenant()
	own.Merchant("bait")
	var slowest time.Duration
	for _, h := range hindrances() {
		plain := own.apiKey(h.name, "bait")
		var key v1alpha1.ApiKey
		s.must(tenant.Get(t.Context(), client.ObjectKey{Namespace: own.Namespace, Name: h.name}, &key))
		h.do(s, tenant, &key)
		disable, err := json.Marshal(map[string]any{"spec": map[string]any{"state": "Disabled", "rotation": map[string]any{"trigger": "leaked"}}})
		s.must(err)
		s.must(tenant.Patch(t.Context(), &key, client.RawPatch(types.MergePatchType, disable)))
		disabled := time.Now()
		for _, r := range s.replicas {
			eventually(t, h.name+": "+r.name+" refuses the key", func() bool {
				got, err := newCaller().call(r.public, http.MethodGet, me, plain, "")
				return err == nil && got.Status == http.StatusUnauthorized
			})
		}
		slowest = max(slowest, time.Since(disabled))
	}
	if slowest > disabledWithin {
		t.Errorf("a key was accepted for %s after it was disabled", slowest)
	}
	return len(hindrances()), fmt.Sprintf("%d ways; refused by 2 replicas after %d ms at most", len(hindrances()), slowest.Milliseconds())
}

// The next version writes the envelope, and all else in shapes that this version cannot read.
var (
	laterKey      = strings.NewReplacer(`"version":1`, `"version":2`, `"lastRotation":`, `"rotations":[],"lastRotation":7,"was":`)
	laterMerchant = strings.NewReplacer(`"version":1`, `"version":2`, `"rateLimit":`, `"limits":[],"rateLimit":7,"was":`)
)

// edit changes an object until nobody else has changed it meanwhile.
func edit[T client.Object](s *deployment, namespace, name string, object T, change func(T)) {
	s.t.Helper()
	eventually(s.t, name+" is edited", func() bool {
		s.must(shared.get(s.t.Context(), namespace, name, object))
		change(object)
		return shared.Client.Update(s.t.Context(), object) == nil
	})
}

// tryNextVersion rolls a platform back after the next version has written records: all roles are of this one. A key that is disabled
// then, and a merchant that is suspended, are refused by a replica that knew them before and by one that has just started. A key that is
// narrowed then is narrow.
func tryNextVersion(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	running, restarted := s.replicas[0], s.replicas[1]
	var slowest time.Duration
	tried := 0
	rounds := 2 * *intensity
	for n := range rounds {
		name := fmt.Sprint("coffee-", n)
		merchant := s.Merchant(name)
		key, other, narrow := s.apiKey(name+"-till", name), s.apiKey(name+"-other", name), s.apiKey(name+"-narrow", name)
		for _, k := range []string{key, other, narrow} {
			s.acceptedEverywhere(k)
		}
		for _, object := range []string{name + "-till", name + "-narrow"} {
			var apiKey v1alpha1.ApiKey
			s.must(shared.get(t.Context(), s.Namespace, object, &apiKey))
			edit(s, kubetest.CredentialsNamespace, published.KeyName(published.ID(apiKey.UID)), &corev1.Secret{}, func(secret *corev1.Secret) {
				secret.Data["record.json"] = []byte(laterKey.Replace(string(secret.Data["record.json"])))
			})
		}
		edit(s, kubetest.CredentialsNamespace, published.MerchantName(published.ID(merchant.UID)), &corev1.ConfigMap{}, func(c *corev1.ConfigMap) {
			c.Data["merchant.json"] = laterMerchant.Replace(c.Data["merchant.json"])
		})
		restarted.kill()
		restarted.restart(t)
		expect := func(r *replica, key string, want int) {
			t.Helper()
			tried++
			got, err := newCaller().call(r.public, http.MethodGet, me, key, "")
			if err != nil || got.Status != want {
				t.Errorf("round %d: %s answered %d, %v; want %d", n, r.name, got.Status, err, want)
			}
		}
		expect(running, key, http.StatusOK)
		expect(running, other, http.StatusOK)
		expect(running, narrow, http.StatusOK)
		expect(restarted, narrow, http.StatusServiceUnavailable)
		expect(restarted, key, http.StatusServiceUnavailable) // it may be good
		expect(restarted, other, http.StatusServiceUnavailable)

		began := time.Now()
		edit(s, s.Namespace, name+"-till", &v1alpha1.ApiKey{}, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		s.refusedBy(running, key, http.StatusUnauthorized)
		s.refusedBy(restarted, key, http.StatusUnauthorized)
		edit(s, s.Namespace, name+"-narrow", &v1alpha1.ApiKey{}, func(k *v1alpha1.ApiKey) { k.Spec.Permissions = []v1alpha1.Permission{v1alpha1.PermissionCancel} })
		s.refusedBy(running, narrow, http.StatusForbidden)
		edit(s, s.Namespace, name+"-narrow", &v1alpha1.ApiKey{}, func(k *v1alpha1.ApiKey) { k.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} })
		s.refusedBy(running, narrow, http.StatusUnauthorized)
		edit(s, s.Namespace, name, &v1alpha1.Merchant{}, func(m *v1alpha1.Merchant) { m.Spec.State = v1alpha1.MerchantSuspended })
		s.refusedBy(running, other, http.StatusForbidden)
		slowest = max(slowest, time.Since(began))
		for range 20 {
			expect(running, key, http.StatusUnauthorized)
			expect(running, narrow, http.StatusUnauthorized)
			expect(running, other, http.StatusForbidden)
		}
	}
	return rounds, fmt.Sprintf("%d answers of replicas that knew them or had just started, none accepted a disabled key, a narrowed one or a suspended merchant; the slowest four took %d ms to reach the replica",
		tried, slowest.Milliseconds())
}

// refusedBy waits until a replica answers a key with the status.
func (s *deployment) refusedBy(r *replica, key string, status int) {
	s.t.Helper()
	client := newCaller()
	eventually(s.t, fmt.Sprintf("%s answers %d", r.name, status), func() bool {
		got, err := client.call(r.public, http.MethodGet, me, key, "")
		return err == nil && got.Status == status
	})
}

// neighbourFlood is what a tenant does to its own ApiKeys, so that a restriction in another namespace would wait. stop ends it.
type neighbourFlood struct {
	name string
	do   func(s *deployment, tenant client.Client, keys []*v1alpha1.ApiKey) (stop func())
}

func neighbourFloods() []neighbourFlood {
	patchAll := func(s *deployment, tenant client.Client, keys []*v1alpha1.ApiKey, spec string) {
		for _, key := range keys {
			if err := tenant.Patch(s.t.Context(), key.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))); err != nil {
				s.t.Error(err)
			}
		}
	}
	return []neighbourFlood{
		{"slow webhook", func(s *deployment, tenant client.Client, keys []*v1alpha1.ApiKey) func() {
			remove := s.slowWebhook(keys[0].Namespace, "", "v1", "secrets", s.dryRun(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: keys[0].Namespace, GenerateName: "probe-"},
			}))
			patchAll(s, tenant, keys, `{"rotation":{"trigger":"slow"}}`)
			return remove
		}},
		{"slow webhook on Events", func(s *deployment, tenant client.Client, keys []*v1alpha1.ApiKey) func() {
			remove := s.slowWebhook(keys[0].Namespace, "events.k8s.io", "v1", "events", s.dryRun(&eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: keys[0].Namespace, GenerateName: "probe-"},
				EventTime:  metav1.NowMicro(), ReportingController: "example.com/probe", ReportingInstance: "probe", Action: "Probe", Reason: "Probe",
				Type: corev1.EventTypeNormal, Regarding: corev1.ObjectReference{Namespace: keys[0].Namespace},
			}))
			stop := callers(4, func(_ caller, n, step int) {
				patchAll(s, tenant, keys[(4*step+n)%len(keys):][:1], fmt.Sprintf(`{"rotation":{"trigger":"events-%d-%d"}}`, n, step))
			})
			return func() {
				stop()
				remove()
			}
		}},
		{"slow webhook on the status of Merchants", func(s *deployment, tenant client.Client, keys []*v1alpha1.ApiKey) func() {
			own := *s
			own.Namespace = keys[0].Namespace
			var merchants []*v1alpha1.Merchant
			for n := range keys {
				merchants = append(merchants, own.Merchant(fmt.Sprint("slow-", n)))
			}
			remove := s.slowWebhook(own.Namespace, v1alpha1.SchemeGroupVersion.Group, v1alpha1.SchemeGroupVersion.Version, "merchants/status", func(ctx context.Context) error {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":1}}`))
				return shared.Client.Status().Patch(ctx, merchants[0].DeepCopy(), patch, client.DryRunAll)
			})
			stop := callers(4, func(_ caller, n, step int) {
				patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"displayName":"Coffee %d-%d"}}`, n, step))
				if err := tenant.Patch(s.t.Context(), merchants[(4*step+n)%len(merchants)].DeepCopy(), patch); err != nil {
					s.t.Error(err)
				}
			})
			return func() {
				stop()
				remove()
			}
		}},
		{"triggers", func(s *deployment, tenant client.Client, keys []*v1alpha1.ApiKey) func() {
			return callers(4, func(_ caller, n, step int) {
				patchAll(s, tenant, keys[(4*step+n)%len(keys):][:1], fmt.Sprintf(`{"rotation":{"trigger":"flood-%d-%d"}}`, n, step))
			})
		}},
		{"fat Secrets", func(s *deployment, tenant client.Client, keys []*v1alpha1.ApiKey) func() {
			for _, key := range keys {
				s.fatSecrets(tenant, key)
			}
			return callers(4, func(_ caller, n, step int) {
				patchAll(s, tenant, keys[(4*step+n)%len(keys):][:1], fmt.Sprintf(`{"rotation":{"trigger":"fat-%d-%d"}}`, n, step))
			})
		}},
		{"disables", func(s *deployment, tenant client.Client, keys []*v1alpha1.ApiKey) func() {
			return callers(4, func(_ caller, n, step int) {
				state := []string{"Disabled", "Active"}[step/len(keys)%2]
				patchAll(s, tenant, keys[(4*step+n)%len(keys):][:1], fmt.Sprintf(`{"state":%q}`, state))
			})
		}},
	}
}

// dryRun returns a probe of slowWebhook, which creates an object without keeping it.
func (s *deployment) dryRun(object client.Object) (probe func(context.Context) error) {
	return func(ctx context.Context) error {
		return shared.Client.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
	}
}

// slowWebhook lets each write of a resource in a namespace wait for 25 seconds, as a validating webhook of its tenant can. probe is such a write,
// which succeeds without the webhook.
func (s *deployment) slowWebhook(namespace, group, version, resource string, probe func(context.Context) error) (remove func()) {
	s.t.Helper()
	s.must(probe(s.t.Context()))
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(25 * time.Second):
		}
	}))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	webhook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "slow-"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "slow.example.com",
			ClientConfig:            admissionv1.WebhookClientConfig{URL: &server.URL, CABundle: ca},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             new(admissionv1.SideEffectClassNone),
			FailurePolicy:           new(admissionv1.Fail),
			TimeoutSeconds:          new(int32(25)),
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.OperationAll},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
			}},
		}},
	}
	s.must(shared.Client.Create(s.t.Context(), webhook))
	remove = sync.OnceFunc(func() {
		s.must(client.IgnoreNotFound(shared.Client.Delete(context.Background(), webhook)))
		server.CloseClientConnections()
		server.Close()
	})
	s.t.Cleanup(remove)
	eventually(s.t, "the webhook holds a write", func() bool {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		return probe(ctx) != nil
	})
	return remove
}

// hasEvent reports whether there is an Event about an object with this text.
func (s *deployment) hasEvent(name, text string) bool {
	s.t.Helper()
	var list eventsv1.EventList
	s.must(shared.Client.List(s.t.Context(), &list, client.InNamespace(s.Namespace)))
	return slices.ContainsFunc(list.Items, func(event eventsv1.Event) bool {
		return event.Regarding.Name == name && strings.Contains(event.Note, text)
	})
}

// tryNeighbours disables a key, deletes another one and narrows the addresses of a third one's Merchant while a tenant of another namespace keeps the operator busy.
func tryNeighbours(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	tenant, own := s.tenant()
	own.Merchant("bait")
	var keys []*v1alpha1.ApiKey
	for n := range 16 * *intensity {
		name := fmt.Sprint("bait-", n)
		own.apiKey(name, "bait")
		key := &v1alpha1.ApiKey{}
		s.must(tenant.Get(t.Context(), client.ObjectKey{Namespace: own.Namespace, Name: name}, key))
		keys = append(keys, key)
	}
	s.Merchant("victim")
	limit, err := containerMemory("operator")
	s.must(err)
	shared.operator.forgetPeak(t)
	var slowest time.Duration
	var peak int64
	for n, flood := range neighbourFloods() {
		disabled, deleted, narrowed := fmt.Sprint("disabled-", n), fmt.Sprint("deleted-", n), fmt.Sprint("narrowed-", n)
		s.Merchant(narrowed)
		plaintexts := []string{s.apiKey(disabled, "victim"), s.apiKey(deleted, "victim"), s.apiKey(narrowed, narrowed)}
		stop := flood.do(s, tenant, keys)
		began := time.Now()
		edit(s, s.Namespace, disabled, &v1alpha1.ApiKey{}, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
		s.must(shared.Client.Delete(t.Context(), &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: deleted}}))
		edit(s, s.Namespace, narrowed, &v1alpha1.Merchant{}, func(m *v1alpha1.Merchant) { m.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.7"} })
		for _, plaintext := range plaintexts {
			s.awaitRefused(plaintext)
		}
		took := time.Since(began)
		s.Eventually("the neighbour's Event about "+disabled, func() bool { return s.hasEvent(disabled, "(state Disabled)") })
		stop()
		peak = shared.operator.checkPeak(t, limit, flood.name)
		if took > disabledWithin {
			t.Errorf("%s: the keys of a neighbour were accepted for %s after they were disabled, deleted and narrowed", flood.name, took)
		}
		slowest = max(slowest, took)
	}
	return len(neighbourFloods()), fmt.Sprintf("%d ways of another tenant; refused by 2 replicas after %d ms at most, the operator had %d MiB of %d",
		len(neighbourFloods()), slowest.Milliseconds(), peak>>20, limit>>20)
}
