package v1alpha1_test

import (
	"strings"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// The smallest manifests that are accepted.
const (
	merchantManifest = `
apiVersion: merchant-operator.io/v1alpha1
kind: Merchant
metadata: {name: acme-coffee, namespace: default}
spec:
  displayName: Acme Coffee
`
	apiKeyManifest = `
apiVersion: merchant-operator.io/v1alpha1
kind: ApiKey
metadata: {name: acme-till-1, namespace: default}
spec:
  merchantRef: {name: acme-coffee}
`
)

// mutation is a change to a manifest. Manifests are untyped here, for a user's YAML is: a number
// where a word belongs, a null, a field nobody knows.
type mutation func(*unstructured.Unstructured)

// set gives the field at a dotted path a value, as YAML.
func set(path, value string) mutation {
	return func(object *unstructured.Unstructured) {
		var decoded any
		Expect(yaml.Unmarshal([]byte(value), &decoded)).To(Succeed())
		Expect(unstructured.SetNestedField(object.Object, decoded, strings.Split(path, ".")...)).To(Succeed())
	}
}

// text gives the field at a dotted path a string, whatever characters it has.
func text(path, value string) mutation {
	return func(object *unstructured.Unstructured) {
		Expect(unstructured.SetNestedField(object.Object, value, strings.Split(path, ".")...)).To(Succeed())
	}
}

// remove takes the field at a dotted path away.
func remove(path string) mutation {
	return func(object *unstructured.Unstructured) {
		unstructured.RemoveNestedField(object.Object, strings.Split(path, ".")...)
	}
}

// object returns the manifest after the mutations.
func object(manifest string, mutations ...mutation) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &out.Object)).To(Succeed())
	for _, mutate := range mutations {
		mutate(out)
	}
	return out
}
