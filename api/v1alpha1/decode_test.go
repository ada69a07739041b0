package v1alpha1_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	ac "github.com/merchant-operator/merchant-operator/api/v1alpha1/applyconfiguration/api/v1alpha1"
)

func TestApiKeyStatus_UnmarshalJSON(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Local())
	for name, tc := range map[string]struct {
		status string
		want   v1alpha1.ApiKeyStatus
	}{
		"good":             {`{"keyID":"abcdefgh2345","nextRotationTime":"2026-01-01T12:00:00Z"}`, v1alpha1.ApiKeyStatus{KeyID: "abcdefgh2345", NextRotationTime: &at}},
		"null":             {`null`, v1alpha1.ApiKeyStatus{}},
		"a word":           {`"x"`, v1alpha1.ApiKeyStatus{}},
		"a bad time":       {`{"keyID":"abcdefgh2345","nextRotationTime":"2026-01-01t12:00:00z"}`, v1alpha1.ApiKeyStatus{KeyID: "abcdefgh2345"}},
		"a bad time below": {`{"keyID":"abcdefgh2345","lastRotation":{"cause":"API","time":"2026-01-01t12:00:00z"}}`, v1alpha1.ApiKeyStatus{KeyID: "abcdefgh2345"}},
		"a bad number":     {`{"keyID":"abcdefgh2345","keyGeneration":1e30}`, v1alpha1.ApiKeyStatus{KeyID: "abcdefgh2345"}},
		"a bad type":       {`{"keyID":{},"prefix":"mk_live_"}`, v1alpha1.ApiKeyStatus{Prefix: "mk_live_"}},
		"another case":     {`{"KeyID":"abcdefgh2345","keyGeneration":1e30}`, v1alpha1.ApiKeyStatus{}},
		"bad conditions":   {`{"keyID":"abcdefgh2345","conditions":"x"}`, v1alpha1.ApiKeyStatus{KeyID: "abcdefgh2345"}},
		"one bad condition": {
			`{"conditions":[{"type":"Foreign","lastTransitionTime":"2026-01-01t12:00:00z"},{"type":"Ready","lastTransitionTime":"2026-01-01T12:00:00Z"}]}`,
			v1alpha1.ApiKeyStatus{Conditions: []metav1.Condition{{Type: "Ready", LastTransitionTime: at}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var key v1alpha1.ApiKey
			if err := json.Unmarshal([]byte(`{"spec":{"state":"Disabled"},"status":`+tc.status+`}`), &key); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, key.Status); diff != "" || key.Spec.State != v1alpha1.ApiKeyDisabled {
				t.Errorf("state %q, status (-want +got):\n%s", key.Spec.State, diff)
			}
		})
	}
}

// An object may have been stored while the API server had another version of the CRD.
var _ = Describe("An ApiKey with a status that Go cannot decode", func() {
	It("fails no list, takes the status of the operator, and can be mended", func(ctx SpecContext) {
		const bad = "2026-01-01t12:00:00z"
		stored, good := object(apiKeyManifest), object(apiKeyManifest, text("metadata.name", "good"))
		create(ctx, stored)
		create(ctx, good)
		key := client.ObjectKeyFromObject(stored)
		patch := func(object client.Object, status string, options ...client.SubResourcePatchOption) error {
			return kube.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(status)), options...)
		}
		conditions := func(foreign string) string {
			return `{"status": {"keyGeneration": 7, "nextRotationTime": "` + foreign + `", "conditions": [
				{"type": "Foreign", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "` + foreign + `"},
				{"type": "Ready", "status": "False", "reason": "A", "message": "", "lastTransitionTime": "2026-01-01T12:00:00Z"}]}}`
		}
		restore := withoutTimePatterns(ctx, "apikeys.merchant-operator.io")
		Eventually(func() error { return patch(stored.DeepCopy(), conditions(bad)) }).Should(Succeed())
		restore(ctx)
		Eventually(func() error { return patch(good.DeepCopy(), conditions(bad), client.DryRunAll) }).ShouldNot(Succeed())

		By("listing all")
		var all v1alpha1.ApiKeyList
		Expect(kube.List(ctx, &all)).To(Succeed())
		Expect(all.Items).To(HaveLen(2))
		var read v1alpha1.ApiKey
		Expect(kube.Get(ctx, key, &read)).To(Succeed())
		Expect(read.Status.KeyGeneration).To(BeEquivalentTo(7))
		Expect(read.Status.NextRotationTime).To(BeNil())
		Expect(read.Status.Conditions).To(HaveExactElements(HaveField("Type", "Ready")))

		By("writing as the operator does")
		read.Finalizers = append(read.Finalizers, v1alpha1.Finalizer)
		Expect(kube.Update(ctx, &read)).To(Succeed())
		status := ac.ApiKeyStatus().WithObservedGeneration(1).WithConditions(readyCondition(1))
		applied := ac.ApiKey(key.Name, key.Namespace).WithStatus(status)
		_ = kube.Status().Apply(ctx, applied, owner, client.ForceOwnership) // the answer cannot be decoded
		Expect(kube.Get(ctx, key, &read)).To(Succeed())
		Expect(read.Status.ObservedGeneration).To(BeEquivalentTo(1))
		Expect(read.Status.Conditions).To(HaveExactElements(HaveField("Status", metav1.ConditionTrue)))
		read.Finalizers = nil
		Expect(kube.Update(ctx, &read)).To(Succeed())

		By("mending it")
		Expect(patch(stored.DeepCopy(), `{"status": null}`)).To(Succeed())
		Expect(kube.Get(ctx, key, stored)).To(Succeed())
		Expect(stored.Object["status"]).To(Equal(map[string]any{"observedGeneration": int64(-1)}))
	})
})

// withoutTimePatterns takes the patterns of all times from a CRD, and returns how to put them back.
func withoutTimePatterns(ctx context.Context, name string) (restore func(context.Context)) {
	GinkgoHelper()
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	Expect(kube.Get(ctx, client.ObjectKey{Name: name}, crd)).To(Succeed())
	setSpec := func(ctx context.Context, spec any) {
		GinkgoHelper()
		patch, err := json.Marshal(map[string]any{"spec": spec})
		Expect(err).NotTo(HaveOccurred())
		Expect(kube.Patch(ctx, crd.DeepCopy(), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	}
	spec := crd.DeepCopy().Object["spec"]
	removePatterns(spec)
	setSpec(ctx, spec)
	restore = func(ctx context.Context) { setSpec(ctx, crd.Object["spec"]) }
	DeferCleanup(restore) // also if the spec fails
	return restore
}

func removePatterns(node any) {
	switch node := node.(type) {
	case map[string]any:
		if node["format"] == "date-time" {
			delete(node, "pattern")
		}
		for _, child := range node {
			removePatterns(child)
		}
	case []any:
		for _, child := range node {
			removePatterns(child)
		}
	}
}
