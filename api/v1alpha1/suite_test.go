package v1alpha1_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// What the API server makes of the CRDs is a property of the API server, so the rules are tried on a
// real one.
func TestAPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "api/v1alpha1")
}

var (
	cluster *rest.Config
	kube    client.Client
)

var _ = BeforeSuite(func() {
	cluster = kubetest.Start(GinkgoTB()).Config
	scheme := runtime.NewScheme()
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	var err error
	kube, err = client.New(cluster, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
})

// create makes the object and removes it at the end of the spec.
func create(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Expect(kube.Create(ctx, object)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(kube.Delete(ctx, object))).To(Succeed())
	})
}

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

// addresses returns a list of n addresses, as YAML.
func addresses(n int) string {
	entries := make([]string, n)
	for i := range entries {
		entries[i] = fmt.Sprintf("203.0.113.%d", i)
	}
	return "[" + strings.Join(entries, ", ") + "]"
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

// expectRefused expects the API server to refuse the object over the one field, in words that hold
// the message. Being refused over anything else as well would hide a rule that does not work.
func expectRefused(ctx context.Context, object client.Object, field, message string) {
	GinkgoHelper()
	expectInvalid(kube.Create(ctx, object, client.DryRunAll), field, message)
}

func expectInvalid(err error, field, message string) {
	GinkgoHelper()
	Expect(err).To(HaveOccurred(), "the API server accepted it")
	Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	Expect(err).To(MatchError(And(ContainSubstring(field), ContainSubstring(message))))
	if field != "spec.expiresAt" && !strings.HasPrefix(field, "status.") { // a rule in words cannot read a date-time that is none
		Expect(err).NotTo(MatchError(Or(ContainSubstring("should match '"), ContainSubstring("chars long"))), "a person reads this")
	}
	var status apierrors.APIStatus
	Expect(errors.As(err, &status)).To(BeTrue())
	for _, cause := range status.Status().Details.Causes {
		// "<nil>" is the API server's note that other rules were not tried.
		Expect(cause.Field).To(BeElementOf(field, "<nil>"), cause.Message)
	}
}
