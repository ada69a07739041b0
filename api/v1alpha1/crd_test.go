package v1alpha1_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

var defaultMerchantSpec = v1alpha1.MerchantSpec{
	DisplayName:     "Acme Coffee",
	State:           v1alpha1.MerchantActive,
	Currency:        v1alpha1.DefaultCurrency,
	IPAllowlistMode: v1alpha1.IPAllowlistEnforce,
	RateLimit:       v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
	Sessions:        v1alpha1.SessionSettings{LifetimeSeconds: 900, IdempotencyMismatch: v1alpha1.IdempotencyMismatchReturn},
}

var defaultApiKeySpec = v1alpha1.ApiKeySpec{
	MerchantRef: v1alpha1.MerchantReference{Name: "acme-coffee"},
	State:       v1alpha1.ApiKeyActive,
	Mode:        v1alpha1.ModeLive,
	Rotation:    v1alpha1.Rotation{OverlapSeconds: new(int32(86400))},
}

var _ = DescribeTable("A Merchant gets the defaults when it leaves out",
	func(ctx SpecContext, mutate mutation, change func(*v1alpha1.MerchantSpec)) {
		manifest := object(merchantManifest, mutate)
		create(ctx, manifest)
		var merchant v1alpha1.Merchant
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(manifest), &merchant)).To(Succeed())
		want := *defaultMerchantSpec.DeepCopy()
		if change != nil {
			change(&want)
		}
		Expect(merchant.Spec).To(Equal(want))
	},
	Entry("everything", remove("spec.state"), nil),
	Entry("by null", set("spec", "{displayName: Acme Coffee, state: null, ipAllowlistMode: null, rateLimit: null, sessions: null}"), nil),
	Entry("what is in empty objects", set("spec", "{displayName: Acme Coffee, rateLimit: {}, sessions: {}}"), nil),
	Entry("half of the rate limit", set("spec.rateLimit", "{burst: 7}"),
		func(spec *v1alpha1.MerchantSpec) { spec.RateLimit.Burst = 7 }),
	Entry("half of the session settings", set("spec.sessions", "{idempotencyMismatch: Reject}"),
		func(spec *v1alpha1.MerchantSpec) {
			spec.Sessions.IdempotencyMismatch = v1alpha1.IdempotencyMismatchReject
		}),
	Entry("fractions that are none", set("spec.rateLimit", "{requestsPerSecond: 20.0}"),
		func(spec *v1alpha1.MerchantSpec) { spec.RateLimit.RequestsPerSecond = 20 }),
)

var _ = DescribeTable("An ApiKey gets the defaults when it leaves out",
	func(ctx SpecContext, mutate mutation, change func(*v1alpha1.ApiKeySpec)) {
		manifest := object(apiKeyManifest, mutate)
		create(ctx, manifest)
		var key v1alpha1.ApiKey
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(manifest), &key)).To(Succeed())
		want := *defaultApiKeySpec.DeepCopy()
		if change != nil {
			change(&want)
		}
		Expect(key.Spec).To(Equal(want))
	},
	Entry("everything", remove("spec.state"), nil),
	Entry("by null", set("spec", "{merchantRef: {name: acme-coffee}, state: null, rotation: null}"), nil),
	Entry("the overlap", set("spec.rotation", "{trigger: a}"),
		func(spec *v1alpha1.ApiKeySpec) { spec.Rotation.Trigger = "a" }),
	Entry("nothing of the overlap, which is zero", set("spec.rotation", "{overlapSeconds: 0}"),
		func(spec *v1alpha1.ApiKeySpec) { spec.Rotation.OverlapSeconds = new(int32(0)) }),
	Entry("the policy and the retention", set("spec.delivery", "{secretName: till-1}"),
		func(spec *v1alpha1.ApiKeySpec) {
			spec.Delivery = &v1alpha1.Delivery{Policy: v1alpha1.DeliverySecret, SecretName: "till-1", RetainSeconds: new(int32(0))}
		}),
)

// A field nobody knows is a typing error: kubectl asks for this validation by default.
var _ = Describe("An unknown field", func() {
	It("is named and refused", func(ctx SpecContext) {
		misspelt := object(merchantManifest, set("spec.ipAllowList", "[203.0.113.0/24]"))
		err := kube.Create(ctx, misspelt, client.DryRunAll, client.FieldValidation("Strict"))
		Expect(err).To(MatchError(ContainSubstring(`unknown field "spec.ipAllowList"`)))
	})
})

var _ = Describe("An update of an ApiKey", func() {
	var key *v1alpha1.ApiKey

	BeforeEach(func(ctx SpecContext) {
		manifest := object(apiKeyManifest, set("spec.delivery", "{secretName: till-1}"))
		create(ctx, manifest)
		key = &v1alpha1.ApiKey{}
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(manifest), key)).To(Succeed())
	})

	It("cannot change merchantRef", func(ctx SpecContext) {
		key.Spec.MerchantRef.Name = "another"
		expectInvalid(kube.Update(ctx, key), "spec.merchantRef", "immutable")
	})
	It("cannot drop merchantRef", func(ctx SpecContext) {
		key.Spec.MerchantRef = v1alpha1.MerchantReference{}
		expectInvalid(kube.Update(ctx, key), "spec.merchantRef", "Required value")
	})
	It("cannot change the mode, in either direction", func(ctx SpecContext) {
		key.Spec.Mode = v1alpha1.ModeTest
		expectInvalid(kube.Update(ctx, key), "spec.mode", "immutable")
		test := object(apiKeyManifest, set("metadata.name", "acme-test-1"), set("spec.mode", "Test"))
		create(ctx, test)
		for _, mode := range []v1alpha1.ApiKeyMode{v1alpha1.ModeLive, ""} { // left out, it is Live
			var read v1alpha1.ApiKey
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(test), &read)).To(Succeed())
			read.Spec.Mode = mode
			expectInvalid(kube.Update(ctx, &read), "spec.mode", "immutable")
		}
	})
	It("cannot set a digest beside a delivery", func(ctx SpecContext) {
		key.Spec.KeyDigest = someDigest
		expectInvalid(kube.Update(ctx, key), "spec.keyDigest", "exclude each other")
	})
	It("can end the delivery, with its Secret and its rotations, and begin it again", func(ctx SpecContext) {
		key.Spec.Rotation.Trigger = "2026-11-21"
		Expect(kube.Update(ctx, key)).To(Succeed())
		none := v1alpha1.Delivery{Policy: v1alpha1.DeliveryNone}
		key.Spec.Delivery = none.DeepCopy()
		expectInvalid(kube.Update(ctx, key.DeepCopy()), "spec.rotation.trigger", "needs delivery.policy Secret")
		key.Spec.Rotation.Trigger = ""
		Expect(kube.Update(ctx, key)).To(Succeed())
		key.Spec.Delivery, key.Spec.Rotation.Trigger = nil, "2026-11-21"
		Expect(kube.Update(ctx, key)).To(Succeed())
	})
	It("can exchange delivery for a digest, and every other field", func(ctx SpecContext) {
		key.Spec.Delivery = nil
		key.Spec.KeyDigest = someDigest
		key.Spec.State = v1alpha1.ApiKeyDisabled
		key.Spec.Rotation.Trigger = "2026-11-21"
		Expect(kube.Update(ctx, key)).To(Succeed())
		Expect(key.Generation).To(BeEquivalentTo(2))
	})
	It("is held to the rules", func(ctx SpecContext) {
		key.Spec.State = "Paused"
		expectInvalid(kube.Update(ctx, key), "spec.state", "Unsupported value")
	})
})

var _ = Describe("An update of a Merchant", func() {
	var merchant *v1alpha1.Merchant

	BeforeEach(func(ctx SpecContext) {
		manifest := object(merchantManifest)
		create(ctx, manifest)
		merchant = &v1alpha1.Merchant{}
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(manifest), merchant)).To(Succeed())
	})

	It("can suspend, close and activate", func(ctx SpecContext) {
		for _, state := range []v1alpha1.MerchantState{v1alpha1.MerchantSuspended, v1alpha1.MerchantClosed, v1alpha1.MerchantActive} {
			merchant.Spec.State = state
			Expect(kube.Update(ctx, merchant)).To(Succeed())
		}
	})
	It("is held to the rules", func(ctx SpecContext) {
		merchant.Spec.IPAllowlist = []v1alpha1.IPBlock{"203.0.113.1/24"}
		expectInvalid(kube.Update(ctx, merchant), "spec.ipAllowlist[0]", "without host bits")
	})
})

var _ = DescribeTable("A list has one owner: what Git applies by force is all that is in",
	func(ctx SpecContext, manifest, field, ours, theirs string) {
		git, another := object(manifest, set(field, ours)), object(manifest, set(field, theirs))
		create(ctx, object(manifest, set(field, ours)))
		apply := func(manifest *unstructured.Unstructured, options ...client.ApplyOption) error {
			return kube.Apply(ctx, client.ApplyConfigurationFromUnstructured(manifest.DeepCopy()), options...)
		}
		Expect(apply(git, client.FieldOwner("git"), client.ForceOwnership)).To(Succeed())
		Expect(apierrors.IsConflict(apply(another, client.FieldOwner("another")))).To(BeTrue(), "a second manager is told")

		Expect(apply(another, client.FieldOwner("another"), client.ForceOwnership)).To(Succeed())
		Expect(apply(git, client.FieldOwner("git"), client.ForceOwnership)).To(Succeed())
		stored := object(manifest)
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(stored), stored)).To(Succeed())
		path := strings.Split(field, ".")
		got, _, _ := unstructured.NestedSlice(stored.Object, path...)
		want, _, _ := unstructured.NestedSlice(git.Object, path...)
		Expect(got).To(Equal(want))
	},
	Entry("a Merchant's allowlist", merchantManifest, "spec.ipAllowlist", "[203.0.113.7]", "[192.0.2.66]"),
	Entry("a webhook's events", withWebhook, "spec.webhook.events", "[session.completed]", "[session.expired]"),
	Entry("an ApiKey's allowlist", apiKeyManifest, "spec.ipAllowlist", "[203.0.113.7]", "[192.0.2.66]"),
	Entry("permissions", apiKeyManifest, "spec.permissions", "[read]", "[create]"),
)

const withWebhook = merchantManifest + "  webhook: {url: 'https://shop.example/hooks'}\n"

// An entry that another manager applied to a set stays whatever its owner applies. Only conditions have several writers.
func TestCRD_ListsHaveOneOwner(t *testing.T) {
	for _, kind := range []string{"apikeys", "merchants"} {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict([]byte(repository.Read(t, "config/crd/bases/merchant-operator.io_"+kind+".yaml")), &crd); err != nil {
			t.Fatal(err)
		}
		for _, version := range crd.Spec.Versions {
			walkSchema(kind, *version.Schema.OpenAPIV3Schema, func(field string, schema apiextensionsv1.JSONSchemaProps) {
				conditions := strings.HasSuffix(field, ".status.conditions")
				if schema.Type == "array" && !conditions && (schema.XListType == nil || *schema.XListType != "atomic") {
					t.Errorf("%s is a list that is not atomic", field)
				}
				if schema.Type == "object" && schema.AdditionalProperties != nil && (schema.XMapType == nil || *schema.XMapType != "atomic") {
					t.Errorf("%s is a map that is not atomic", field)
				}
			})
		}
	}
}

// undecodableTimes are what the format date-time accepts and Go does not.
var undecodableTimes = []string{
	"2026-01-01t12:00:00Z", "2026-01-01T12:00:00z", "2026-01-01T12:00:00x5Z", "2026-01-01T12:00:00+99:99", "2026-01-01T12:00:00+01:60",
	"2026-01-01T12:00:00+25:00", "2026-01-01T12:00:00Zt", "2026-01-01T12:00:00+01:00T12:00:00Z",
}

// One object that Go cannot decode fails the list of all objects of its kind, in each client. So what is stored has to be decodable.
func TestCRD_Decodable(t *testing.T) {
	for _, directory := range []string{"config/crd/bases", "charts/merchant-operator/files/crds"} {
		for _, kind := range []string{"apikeys", "merchants"} {
			file := path.Join(directory, "merchant-operator.io_"+kind+".yaml")
			var crd apiextensionsv1.CustomResourceDefinition
			if err := yaml.UnmarshalStrict([]byte(repository.Read(t, file)), &crd); err != nil {
				t.Fatal(err)
			}
			for _, version := range crd.Spec.Versions {
				walkSchema(kind, *version.Schema.OpenAPIV3Schema, func(field string, schema apiextensionsv1.JSONSchemaProps) {
					for _, problem := range undecodable(schema) {
						t.Errorf("%s: %s: %s", file, field, problem)
					}
				})
			}
		}
	}
}

func walkSchema(field string, schema apiextensionsv1.JSONSchemaProps, visit func(string, apiextensionsv1.JSONSchemaProps)) {
	visit(field, schema)
	for name, property := range schema.Properties {
		walkSchema(field+"."+name, property, visit)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walkSchema(field+"[]", *schema.Items.Schema, visit)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		walkSchema(field+"{}", *schema.AdditionalProperties.Schema, visit)
	}
}

// undecodable says what the schema of a field accepts, although Go does not decode it.
func undecodable(schema apiextensionsv1.JSONSchemaProps) (problems []string) {
	switch {
	case schema.Format == "date-time":
		for _, value := range undecodableTimes {
			if schema.Pattern == "" || regexp.MustCompile(schema.Pattern).MatchString(value) {
				problems = append(problems, "accepts the time "+value)
			}
		}
	case schema.Type == "integer" && schema.Format == "int32" && (schema.Minimum == nil || schema.Maximum == nil):
		problems = append(problems, "has no minimum or maximum: not every API server checks the range of an int32")
	case schema.Type == "integer" && schema.Format != "int32" && schema.Format != "int64", schema.Type == "number", schema.XIntOrString,
		schema.XEmbeddedResource, schema.XPreserveUnknownFields != nil, schema.Type == "string" && schema.Format != "":
		problems = append(problems, "has a type or format of which this test does not know whether Go decodes all that the API server accepts")
	}
	return problems
}

// statusTimes are the times of each status, with a status that has one.
var statusTimes = []struct{ manifest, field, status string }{
	{apiKeyManifest, "conditions[0].lastTransitionTime", `{conditions: [{type: Ready, status: "True", reason: Published, message: "", lastTransitionTime: %q}]}`},
	{apiKeyManifest, "lastRotation.time", `{lastRotation: {cause: API, time: %q}}`},
	{apiKeyManifest, "previousKeys[0].validUntil", `{previousKeys: [{validUntil: %q}]}`},
	{apiKeyManifest, "previousKeys[0].lastUsedTime", `{previousKeys: [{validUntil: "2026-01-01T12:00:00Z", lastUsedTime: %q}]}`},
	{apiKeyManifest, "nextRotationTime", `{nextRotationTime: %q}`},
	{apiKeyManifest, "lastUsedTime", `{lastUsedTime: %q}`},
	{merchantManifest, "conditions[0].lastTransitionTime", `{conditions: [{type: Ready, status: "True", reason: Published, message: "", lastTransitionTime: %q}]}`},
	{merchantManifest, "webhook.lastDelivery.time", `{webhook: {lastDelivery: {time: %q}}}`},
	{merchantManifest, "webhook.lastFailure.time", `{webhook: {lastFailure: {reason: Timeout, time: %q}}}`},
	{merchantManifest, "allowlist.refused[0].lastSeen", `{allowlist: {refused: [{block: 203.0.113.0/24, requests: 1, lastSeen: %q}]}}`},
}

// Who may patch a status must not be able to stop the operator, which lists the objects of all namespaces.
var _ = Describe("A time in a status", func() {
	for _, tc := range statusTimes {
		It(object(tc.manifest).GetKind()+" "+tc.field+" is refused, or read by Go", func(ctx SpecContext) {
			stored := object(tc.manifest)
			create(ctx, stored)
			patch := func(value string) error {
				status, err := yaml.YAMLToJSON(fmt.Appendf(nil, "status: "+tc.status, value))
				Expect(err).NotTo(HaveOccurred())
				return kube.Status().Patch(ctx, stored.DeepCopy(), client.RawPatch(types.MergePatchType, status))
			}
			for _, value := range slices.Concat(undecodableTimes, []string{
				"", "yesterday", "2026-01-01", "2026-01-01T12:00:00", "2026-01-01T12:00:00,5Z", "2026-01-01T12:00:00+24:00", "2026-01-01T12:00:60Z",
				"2026-02-29T12:00:00Z", "2026-13-01T12:00:00Z", "2026-01-01T24:00:00Z", "10000-01-01T12:00:00Z", "2026-01-01T12:00:00Z\n",
			}) {
				By(value)
				expectInvalid(patch(value), "status."+tc.field, "")
			}
			for _, value := range []string{"0000-01-01T00:00:00Z", "2026-11-21T09:30:00Z", "2028-02-29T00:00:00Z", "9999-12-31T23:59:59Z"} {
				By(value)
				Expect(patch(value)).To(Succeed())
				Expect(kube.List(ctx, &v1alpha1.ApiKeyList{})).To(Succeed())
				Expect(kube.List(ctx, &v1alpha1.MerchantList{})).To(Succeed())
			}
		})
	}
})

var owner = client.FieldOwner("merchant-operator")

func readyCondition(generation int64) *metav1ac.ConditionApplyConfiguration {
	return metav1ac.Condition().
		WithType(v1alpha1.ReadyCondition).
		WithStatus(metav1.ConditionTrue).
		WithReason(v1alpha1.ReasonPublished).
		WithMessage("published").
		WithObservedGeneration(generation).
		WithLastTransitionTime(metav1.NewTime(time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)))
}

var _ = Describe("The status of a Merchant", func() {
	var merchant *v1alpha1.Merchant

	BeforeEach(func(ctx SpecContext) {
		merchant = &v1alpha1.Merchant{
			ObjectMeta: metav1.ObjectMeta{Name: "acme-coffee", Namespace: "default"},
			Spec:       v1alpha1.MerchantSpec{DisplayName: "Acme Coffee"},
			Status:     v1alpha1.MerchantStatus{ObservedGeneration: 7, MerchantID: "mer_forged"},
		}
		create(ctx, merchant)
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(merchant), merchant)).To(Succeed())
	})

	It("says, before the operator does, that nothing was observed", func() {
		Expect(merchant.Status).To(Equal(v1alpha1.MerchantStatus{ObservedGeneration: -1}))
	})

	It("is what the operator applies, and its spec cannot be changed that way", func(ctx SpecContext) {
		status := ac.MerchantStatus().WithObservedGeneration(1).WithMerchantID("mer_abcdefgh2345").WithConditions(readyCondition(1))
		applied := ac.Merchant(merchant.Name, merchant.Namespace).
			WithSpec(ac.MerchantSpec().WithDisplayName("Another")).
			WithStatus(status)
		Expect(kube.Status().Apply(ctx, applied, owner)).To(Succeed())

		var read v1alpha1.Merchant
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(merchant), &read)).To(Succeed())
		Expect(read.Spec).To(Equal(merchant.Spec))
		Expect(read.Generation).To(Equal(merchant.Generation))
		Expect(read.Status.ObservedGeneration).To(BeEquivalentTo(1))
		Expect(read.Status.MerchantID).To(Equal("mer_abcdefgh2345"))
		Expect(read.Status.Conditions).To(HaveLen(1))

		By("applying the same again, which writes nothing")
		Expect(kube.Status().Apply(ctx, applied, owner)).To(Succeed())
		var again v1alpha1.Merchant
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(merchant), &again)).To(Succeed())
		Expect(again.ResourceVersion).To(Equal(read.ResourceVersion))
	})

	It("loses a condition that the operator no longer applies", func(ctx SpecContext) {
		reconciling := readyCondition(1).WithType(v1alpha1.ReconcilingCondition)
		status := ac.MerchantStatus().WithObservedGeneration(1).WithConditions(readyCondition(1), reconciling)
		Expect(kube.Status().Apply(ctx, ac.Merchant(merchant.Name, merchant.Namespace).WithStatus(status), owner)).To(Succeed())
		status = ac.MerchantStatus().WithObservedGeneration(2).WithConditions(readyCondition(2))
		Expect(kube.Status().Apply(ctx, ac.Merchant(merchant.Name, merchant.Namespace).WithStatus(status), owner)).To(Succeed())

		Expect(kube.Get(ctx, client.ObjectKeyFromObject(merchant), merchant)).To(Succeed())
		Expect(merchant.Status.ObservedGeneration).To(BeEquivalentTo(2))
		Expect(merchant.Status.Conditions).To(HaveExactElements(HaveField("Type", v1alpha1.ReadyCondition)))
	})

	It("is kept when the spec is applied", func(ctx SpecContext) {
		status := ac.MerchantStatus().WithObservedGeneration(1)
		Expect(kube.Status().Apply(ctx, ac.Merchant(merchant.Name, merchant.Namespace).WithStatus(status), owner)).To(Succeed())
		spec := ac.Merchant(merchant.Name, merchant.Namespace).
			WithSpec(ac.MerchantSpec().WithDisplayName("Acme Tea")).
			WithStatus(ac.MerchantStatus().WithObservedGeneration(9))
		Expect(kube.Apply(ctx, spec, client.FieldOwner("gitops"), client.ForceOwnership)).To(Succeed())

		Expect(kube.Get(ctx, client.ObjectKeyFromObject(merchant), merchant)).To(Succeed())
		Expect(merchant.Spec.DisplayName).To(Equal("Acme Tea"))
		Expect(merchant.Status.ObservedGeneration).To(BeEquivalentTo(1))
		Expect(merchant.Generation).To(BeEquivalentTo(2))
	})
})

var _ = Describe("The status of an ApiKey", func() {
	var key *v1alpha1.ApiKey

	BeforeEach(func(ctx SpecContext) {
		key = &v1alpha1.ApiKey{
			ObjectMeta: metav1.ObjectMeta{Name: "acme-till-1", Namespace: "default"},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "acme-coffee"}},
		}
		create(ctx, key)
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(key), key)).To(Succeed())
	})

	It("says, before the operator does, that nothing was observed", func() {
		Expect(key.Status).To(Equal(v1alpha1.ApiKeyStatus{ObservedGeneration: -1}))
	})

	It("takes everything the operator has to say", func(ctx SpecContext) {
		at := metav1.NewTime(time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC))
		status := ac.ApiKeyStatus().
			WithObservedGeneration(1).
			WithKeyID("abcdefgh2345").
			WithPrefix("mk_live_abcdefgh2345_0123").
			WithKeyGeneration(2).
			WithLastRotation(ac.RotationStatus().WithTime(at).WithCause(v1alpha1.RotationTrigger)).
			WithNextRotationTime(at).
			WithObservedTrigger("2026-11-21").
			WithConditions(readyCondition(1))
		Expect(kube.Status().Apply(ctx, ac.ApiKey(key.Name, key.Namespace).WithStatus(status), owner)).To(Succeed())

		Expect(kube.Get(ctx, client.ObjectKeyFromObject(key), key)).To(Succeed())
		Expect(key.Status.KeyID).To(Equal("abcdefgh2345"))
		Expect(key.Status.KeyGeneration).To(BeEquivalentTo(2))
		Expect(key.Status.LastRotation.Cause).To(Equal(v1alpha1.RotationTrigger))
		Expect(key.Status.NextRotationTime.Time).To(BeTemporally("==", at.Time))
		Expect(key.Status.ObservedTrigger).To(Equal("2026-11-21"))
	})

	It("refuses a cause that is none", func(ctx SpecContext) {
		status := ac.ApiKeyStatus().WithLastRotation(ac.RotationStatus().WithTime(metav1.Now()).WithCause("Whim"))
		err := kube.Status().Apply(ctx, ac.ApiKey(key.Name, key.Namespace).WithStatus(status), owner)
		expectInvalid(err, "status.lastRotation.cause", "Unsupported value")
	})
})

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
