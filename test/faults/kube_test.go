//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// leastCalm is how many requests to the Kubernetes API a new Merchant with an ApiKey may cost the operator, all retries
// included.
const leastCalm = 40

func kubeFaults() []fault {
	return []fault{{
		"P7", "the Kubernetes API away for every role",
		"charges and webhooks go on, only rotate is 503; then the operator catches up without a stampede", tryWithoutKube,
	}}
}

func tryWithoutKube(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 1, 1)
	hooks := newReceiver(t)
	s.Merchant("coffee", func(m *v1alpha1.Merchant) { m.Spec.Webhook = &v1alpha1.Webhook{URL: hooks.URL} })
	key := s.apiKey("till", "coffee")
	hooks.VerifyWith(s.delivered("coffee-webhook", "secret"))
	api := s.replicas[0]
	stopProbing := probe(t, api.process, s.dispatchers[0])
	defer stopProbing()
	rounds, objects := *intensity, 20
	charges, most := 0, 0.0
	for round := range rounds {
		roles := []*process{shared.operator, api.process, s.dispatchers[0]}
		for _, role := range roles {
			role.toKube.Cut()
			t.Cleanup(role.toKube.Mend) // whatever becomes of this test
		}
		for range 50 {
			id := s.mustCall(http.StatusCreated, api.public, http.MethodPost, sessions, key, `{"amountCents":100}`).Text("sessionId")
			s.mustCall(http.StatusOK, api.public, http.MethodPost, sessions+"/"+id+"/cancel", key, "")
			charges++
		}
		refused := s.mustCall(http.StatusServiceUnavailable, api.public, http.MethodPost, rotate, key, "")
		if refused.Header.Get("Retry-After") == "" {
			t.Error("a refused rotation does not say when to try again")
		}
		eventually(t, "every webhook arrives", func() bool { return hooks.events() >= charges })
		var merchants []*v1alpha1.Merchant
		for n := range objects {
			name := fmt.Sprintf("shop-%d-%d", round, n)
			merchants = append(merchants, s.Merchant(name))
			s.must(shared.Client.Create(t.Context(), &v1alpha1.ApiKey{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
				Spec: v1alpha1.ApiKeySpec{
					MerchantRef: v1alpha1.MerchantReference{Name: name},
					Delivery:    &v1alpha1.Delivery{SecretName: name + "-key"},
				},
			}))
		}
		before := shared.asked.n.Load()
		for _, role := range roles {
			role.toKube.Mend()
		}
		for _, merchant := range merchants {
			eventually(t, merchant.Name+" is Ready", func() bool {
				var key v1alpha1.ApiKey
				s.must(shared.get(t.Context(), s.Namespace, merchant.Name, merchant))
				s.must(shared.get(t.Context(), s.Namespace, merchant.Name, &key))
				return meta.IsStatusConditionTrue(merchant.Status.Conditions, v1alpha1.ReadyCondition) &&
					meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.ReadyCondition)
			})
		}
		each := float64(shared.asked.n.Load()-before) / float64(objects)
		if most = max(most, each); each > leastCalm {
			t.Errorf("the operator asked %.0f times for each Merchant with its key", each)
		}
		client := newCaller()
		client.http.Timeout = fixture.Patience
		eventually(t, "the API rotates again", func() bool {
			got, err := client.call(api.public, http.MethodPost, rotate, key, "")
			if err == nil && got.Status == http.StatusOK {
				key = shared.secret(got.Text("fullKey"))
				return true
			}
			return false
		})
	}
	return rounds, fmt.Sprintf("%d charges and as many webhooks meanwhile, both roles ready all the time; %d Merchants with keys caught up on, %.0f requests each",
		charges, rounds*objects, most)
}
