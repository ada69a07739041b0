//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

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
