package v1alpha1_test

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

// What a person sees in `kubectl get`: the API server renders it.
var _ = Describe("kubectl", func() {
	It("knows the kinds by their short names and category", func() {
		client, err := discovery.NewDiscoveryClientForConfig(cluster)
		Expect(err).NotTo(HaveOccurred())
		resources, err := client.ServerResourcesForGroupVersion("merchant-operator.io/v1alpha1")
		Expect(err).NotTo(HaveOccurred())
		shortNames := map[string][]string{}
		for _, resource := range resources.APIResources {
			if resource.Name == "merchants" || resource.Name == "apikeys" {
				shortNames[resource.Kind] = resource.ShortNames
				Expect(resource.Categories).To(ConsistOf("payments"))
				Expect(resource.Namespaced).To(BeTrue())
			}
		}
		Expect(shortNames).To(Equal(map[string][]string{"Merchant": {"mer"}, "ApiKey": {"ak"}}))
	})

	It("shows a Merchant's readiness, state, name, id and age", func(ctx SpecContext) {
		create(ctx, object(merchantManifest))
		status := ac.MerchantStatus().WithObservedGeneration(1).WithMerchantID("mer_abcdefgh2345").WithConditions(readyCondition(1))
		Expect(kube.Status().Apply(ctx, ac.Merchant("acme-coffee", "default").WithStatus(status), owner)).To(Succeed())

		Expect(tableRow(ctx, "merchants")).To(And(
			HaveKeyWithValue("Name", "acme-coffee"),
			HaveKeyWithValue("Ready", "True"),
			HaveKeyWithValue("State", "Active"),
			HaveKeyWithValue("Display name", "Acme Coffee"),
			HaveKeyWithValue("ID", "mer_abcdefgh2345"),
			HaveKeyWithValue("Reason (wide)", "Published"),
			HaveKeyWithValue("Age", Not(BeEmpty())),
		))
	})

	It("shows an ApiKey's readiness, state, merchant, prefix, generation, ends and age", func(ctx SpecContext) {
		create(ctx, object(apiKeyManifest, set("spec.expiresAt", `"2099-01-02T03:04:05Z"`)))
		status := ac.ApiKeyStatus().
			WithObservedGeneration(1).
			WithPrefix("mk_live_abcdefgh2345_0123").
			WithKeyGeneration(2).
			WithLastUsedTime(metav1.NewTime(time.Now().Add(-3*time.Hour))).
			WithPreviousKeys(
				ac.PreviousKey().WithValidUntil(metav1.NewTime(time.Date(2098, 2, 3, 4, 5, 6, 0, time.UTC))),
				ac.PreviousKey().WithValidUntil(metav1.NewTime(time.Date(2098, 1, 3, 4, 5, 6, 0, time.UTC))),
			).
			WithLastRotation(ac.RotationStatus().WithTime(metav1.NewTime(time.Now().Add(-time.Hour))).WithCause("Trigger")).
			WithConditions(readyCondition(1))
		Expect(kube.Status().Apply(ctx, ac.ApiKey("acme-till-1", "default").WithStatus(status), owner)).To(Succeed())

		Expect(tableRow(ctx, "apikeys")).To(And(
			HaveKeyWithValue("Name", "acme-till-1"),
			HaveKeyWithValue("Ready", "True"),
			HaveKeyWithValue("State", "Active"),
			HaveKeyWithValue("Mode (wide)", "Live"),
			HaveKeyWithValue("Merchant", "acme-coffee"),
			HaveKeyWithValue("Prefix", "mk_live_abcdefgh2345_0123"),
			HaveKeyWithValue("Generation", BeEquivalentTo(2)),
			HaveKeyWithValue("Rotated", "60m"),
			HaveKeyWithValue("Expires", "2099-01-02T03:04:05Z"),
			HaveKeyWithValue("Last used (wide)", "3h"),
			HaveKeyWithValue("Overlap until (wide)", "2098-02-03T04:05:06Z"),
			HaveKeyWithValue("Reason (wide)", "Published"),
			HaveKeyWithValue("Age", Not(BeEmpty())),
		))
	})
})

// tableRow asks for the resource as kubectl does, and returns its one row by column. Columns that
// need -o wide are marked.
func tableRow(ctx context.Context, resource string) map[string]any {
	GinkgoHelper()
	config := rest.CopyConfig(cluster)
	config.APIPath = "/apis"
	config.GroupVersion = &metav1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	Expect(err).NotTo(HaveOccurred())

	var table metav1.Table
	err = client.Verb(http.MethodGet).
		AbsPath("/apis/merchant-operator.io/v1alpha1/namespaces/default", resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		Do(ctx).Into(&table)
	Expect(err).NotTo(HaveOccurred())
	Expect(table.Rows).To(HaveLen(1))
	row := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		name := column.Name
		if column.Priority > 0 {
			name += " (wide)"
		}
		row[name] = table.Rows[0].Cells[i]
	}
	return row
}
