package system

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// A till keeps its key when its ApiKey moves to another cluster, with a Kubernetes API and a Redis of
// its own: the digest out of the old record goes into spec.keyDigest of the new ApiKey.
func TestAKeyMovesToAnotherClusterByItsDigest(t *testing.T) {
	t.Parallel()
	s := newTenant(t)
	apiKey, key := s.till()
	digest := s.record(apiKey).Current.Digest.Hex()

	next, err := install(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	})
	get := func(key string) fixture.Answer { return s.send(next.replicas[0].Public, http.MethodGet, me, key, "") }
	s.want(get(key), http.StatusUnauthorized)
	moved := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "till"},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "coffee"}, KeyDigest: digest},
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}},
		&v1alpha1.Merchant{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "coffee"}, Spec: v1alpha1.MerchantSpec{DisplayName: "Acme coffee"},
		},
		moved,
	} {
		if err := next.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	s.Eventually("the new cluster accepts the key", func() bool { return get(key).Status == http.StatusOK })
	charge := func(key string) fixture.Answer {
		return s.send(next.replicas[0].Public, http.MethodPost, sessions, key, `{"amountCents":1250}`)
	}
	s.want(charge(key), http.StatusCreated)
	s.want(s.call(0, http.MethodGet, me, key, ""), http.StatusOK) // the old cluster goes on until it is switched off

	// Nobody else can move the same key.
	rival := moved.DeepCopy()
	rival.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, Name: "rival"}
	if err := next.Client.Create(t.Context(), rival); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the second ApiKey of the digest is Stalled", func() bool {
		if err := next.Client.Get(context.Background(), client.ObjectKeyFromObject(rival), rival); err != nil {
			t.Fatal(err)
		}
		stalled := meta.FindStatusCondition(rival.Status.Conditions, v1alpha1.StalledCondition)
		return stalled != nil && stalled.Reason == v1alpha1.ReasonKeyDigestClaimed
	})

	rotated := s.want(s.send(next.replicas[0].Public, http.MethodPost, rotate, key, ""), http.StatusOK).Body["fullKey"].(string)
	s.want(get(key), http.StatusUnauthorized)
	s.want(charge(rotated), http.StatusCreated)
}
