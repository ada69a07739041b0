//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// victim is an ApiKey whose key somebody else claims.
type victim struct {
	*deployment

	name, key string
}

// keyEnds are the ways for a key to be one no more.
var keyEnds = []struct {
	name string
	end  func(v victim)
}{
	{"rotated over HTTP", func(v victim) {
		shared.secret(v.mustCall(http.StatusOK, v.replicas[0].public, http.MethodPost, rotate, v.key, "").Text("fullKey"))
	}},
	{"rotated by its trigger", func(v victim) {
		v.change(func(spec *v1alpha1.ApiKeySpec) { spec.Rotation.OverlapSeconds = new(int32(0)) })
		v.trigger(v.name, "away with it")
	}},
	{"disabled", func(v victim) {
		v.change(func(spec *v1alpha1.ApiKeySpec) { spec.State = v1alpha1.ApiKeyDisabled })
	}},
	{"deleted", func(v victim) {
		apiKey := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.name}}
		v.must(shared.Client.Delete(v.t.Context(), apiKey))
		eventually(v.t, "the ApiKey is gone", func() bool {
			return apierrors.IsNotFound(shared.get(v.t.Context(), v.Namespace, v.name, &v1alpha1.ApiKey{}))
		})
	}},
}

// change edits the ApiKey and waits until the operator has seen to it.
func (v victim) change(edit func(*v1alpha1.ApiKeySpec)) {
	v.t.Helper()
	var apiKey v1alpha1.ApiKey
	v.must(shared.get(v.t.Context(), v.Namespace, v.name, &apiKey))
	before := apiKey.DeepCopy()
	edit(&apiKey.Spec)
	v.must(shared.Client.Patch(v.t.Context(), &apiKey, client.MergeFrom(before)))
	v.observed(&apiKey)
}

// observed waits until the operator has seen to an ApiKey as it is.
func (s *deployment) observed(apiKey *v1alpha1.ApiKey) {
	s.t.Helper()
	eventuallySees(s.t, apiKey.Name+" is observed", func() (string, bool) {
		s.must(shared.get(s.t.Context(), apiKey.Namespace, apiKey.Name, apiKey))
		return fmt.Sprintf("%+v", apiKey.Status), apiKey.Status.ObservedGeneration == apiKey.Generation
	})
}

// tryClaims has a tenant make ApiKeys whose keyDigest is that of another's key, before the key ends and after.
func tryClaims(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	s.Merchant("coffee")
	tenant, own := s.tenant()
	own.Merchant("bait")
	tried := 0
	for _, ending := range keyEnds {
		for _, first := range []bool{true, false} {
			tried++
			v := victim{deployment: s, name: fmt.Sprint("till-", tried)}
			v.key = s.apiKey(v.name, "coffee")
			claim := func() {
				thief := &v1alpha1.ApiKey{
					ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: fmt.Sprint("claim-", tried)},
					Spec: v1alpha1.ApiKeySpec{
						MerchantRef: v1alpha1.MerchantReference{Name: "bait"}, KeyDigest: apikey.DigestOf(v.key).Hex(),
					},
				}
				s.must(tenant.Create(t.Context(), thief))
				own.observed(thief)
			}
			if first {
				claim()
				v.opens("with a claim", http.StatusOK)
			}
			ending.end(v)
			if !first {
				claim()
			}
			// What is applied now is in force after all that came before.
			own.apiKey(fmt.Sprint("later-", tried), "bait")
			v.opens(fmt.Sprintf("%s, claimed before that: %v", ending.name, first), http.StatusUnauthorized)
		}
	}
	// A digest in a spec is the tenant's own doing, and nothing that was told to it.
	s.must(tenant.DeleteAllOf(t.Context(), &v1alpha1.ApiKey{}, client.InNamespace(own.Namespace)))
	eventuallySees(t, "the tenant's ApiKeys are gone", func() (string, bool) {
		var left v1alpha1.ApiKeyList
		s.must(tenant.List(t.Context(), &left, client.InNamespace(own.Namespace)))
		var names []string
		for _, one := range left.Items {
			names = append(names, one.Name)
		}
		return strings.Join(names, ", "), len(names) == 0
	})
	return tried, fmt.Sprintf("%d claims to keys that were rotated, disabled or deleted, half of them before that: none opened anything", tried)
}

// opens asks every replica whether the key opens its own merchant, or nothing.
func (v victim) opens(when string, want int) {
	v.t.Helper()
	for _, r := range v.replicas {
		got, err := newCaller().call(r.public, http.MethodGet, me, v.key, "")
		merchant, _ := got.Body["merchant"].(map[string]any)
		if err != nil || got.Status != want || (want == http.StatusOK && merchant["name"] != "Acme coffee") {
			v.t.Errorf("%s: %s answers %s's key with %d for %v, %v; want %d", when, r.name, v.name, got.Status, merchant["name"], err, want)
		}
	}
}
