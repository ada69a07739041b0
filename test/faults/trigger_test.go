//go:build faults

package faults

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// trigger has a key rotated as Git does, and returns the new one once every replica takes it.
func (s *stage) trigger(name, word string) string {
	s.t.Helper()
	var apiKey v1alpha1.ApiKey
	s.must(shared.get(s.t.Context(), s.namespace, name, &apiKey))
	before := apiKey.DeepCopy()
	apiKey.Spec.Rotation.Trigger = word
	s.must(shared.kube.Patch(s.t.Context(), &apiKey, client.MergeFrom(before)))
	eventually(s.t, "the trigger is handled", func() bool {
		s.must(shared.get(s.t.Context(), s.namespace, name, &apiKey))
		return apiKey.Status.ObservedTrigger == word
	})
	var secret corev1.Secret
	s.must(shared.get(s.t.Context(), s.namespace, name+"-key", &secret))
	key := shared.secret(string(secret.Data["apiKey"]))
	for _, r := range s.replicas {
		s.accepts(r, key)
	}
	return key
}

// generation is that of a key as it is published now.
func (s *stage) generation(name string) int64 {
	s.t.Helper()
	var apiKey v1alpha1.ApiKey
	s.must(shared.get(s.t.Context(), s.namespace, name, &apiKey))
	var secret corev1.Secret
	s.must(shared.get(s.t.Context(), credentialsNamespace, published.KeyName(published.ID(apiKey.UID)), &secret))
	record, err := published.DecodeKey(&secret)
	s.must(err)
	return record.Generation
}
