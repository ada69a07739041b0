package controllers

import (
	"context"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// awaitReady waits until kstatus, and so `kubectl wait` and Flux, say that the object is done.
func (f *fixture) awaitReady(object client.Object) {
	GinkgoHelper()
	f.awaitStatus(object, kstatus.CurrentStatus, v1alpha1.ReasonPublished)
}

// awaitStatus waits until kstatus says so of the present generation of the object, for that reason.
func (f *fixture) awaitStatus(object client.Object, status kstatus.Status, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		f.read(object)
		g.Expect(object.GetGeneration()).To(Equal(observedGeneration(object)), "the status is of this spec")
		ready := meta.FindStatusCondition(conditionsOf(object), v1alpha1.ReadyCondition)
		g.Expect(ready).NotTo(BeNil())
		g.Expect(ready.Reason).To(Equal(reason), ready.Message)
		g.Expect(computed(g, object)).To(Equal(status))
	}).Should(Succeed())
	expectConformant(Default, object)
}

// expectConformance checks all objects of the fixture once they have come to rest.
func (f *fixture) expectConformance() {
	GinkgoHelper()
	for _, object := range f.objects() {
		Eventually(func(g Gomega) {
			g.Expect(client.IgnoreNotFound(f.kube.Get(context.Background(), client.ObjectKeyFromObject(object), object))).To(Succeed())
			expectConformant(g, object)
		}).Should(Succeed())
	}
}

// objects are all Merchants and ApiKeys of the fixture.
func (f *fixture) objects() []client.Object {
	GinkgoHelper()
	var all []client.Object
	for _, list := range []client.ObjectList{&v1alpha1.MerchantList{}, &v1alpha1.ApiKeyList{}} {
		Expect(f.kube.List(context.Background(), list, client.InNamespace(f.namespace))).To(Succeed())
		Expect(meta.EachListItem(list, func(object runtime.Object) error {
			all = append(all, object.(client.Object))
			return nil
		})).To(Succeed())
	}
	return all
}

// expectConformant checks the rules by which people and tools read a status, on one object.
func expectConformant(g Gomega, object client.Object) {
	GinkgoHelper()
	conditions := conditionsOf(object)
	ready := meta.FindStatusCondition(conditions, v1alpha1.ReadyCondition)
	g.Expect(ready).NotTo(BeNil(), "Ready is always present")
	abnormal := 0
	for _, condition := range conditions {
		if condition.Type == v1alpha1.WebhookHealthyCondition {
			continue // the dispatcher's, who knows no generation
		}
		g.Expect(condition.ObservedGeneration).To(Equal(observedGeneration(object)), "%s is of the observed spec", condition.Type)
		g.Expect(condition.Message).NotTo(BeEmpty())
		if condition.Type != v1alpha1.ReconcilingCondition && condition.Type != v1alpha1.StalledCondition {
			continue
		}
		abnormal++
		g.Expect(condition.Status).To(Equal(metav1.ConditionTrue), "%s is present only while true", condition.Type)
		g.Expect(condition.Reason).To(Equal(ready.Reason), "all conditions give one reason")
	}
	g.Expect(abnormal).To(BeNumerically("<=", 1), "it waits or is stalled, not both")
	if observedGeneration(object) != object.GetGeneration() {
		return
	}
	want := kstatus.CurrentStatus
	switch {
	case meta.IsStatusConditionTrue(conditions, v1alpha1.StalledCondition):
		want = kstatus.FailedStatus
	case meta.IsStatusConditionTrue(conditions, v1alpha1.ReconcilingCondition):
		want = kstatus.InProgressStatus
	}
	g.Expect(computed(g, object)).To(Equal(want), "kstatus reads the same as people")
	g.Expect(meta.IsStatusConditionTrue(conditions, v1alpha1.ReadyCondition)).To(Equal(want == kstatus.CurrentStatus), "kubectl wait reads the same as kstatus")
}

func computed(g Gomega, object client.Object) kstatus.Status {
	GinkgoHelper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	g.Expect(err).NotTo(HaveOccurred())
	result, err := kstatus.Compute(&unstructured.Unstructured{Object: content})
	g.Expect(err).NotTo(HaveOccurred())
	return result.Status
}

func conditionsOf(object client.Object) []metav1.Condition {
	switch o := object.(type) {
	case *v1alpha1.Merchant:
		return o.Status.Conditions
	case *v1alpha1.ApiKey:
		return o.Status.Conditions
	}
	return nil
}

func observedGeneration(object client.Object) int64 {
	switch o := object.(type) {
	case *v1alpha1.Merchant:
		return o.Status.ObservedGeneration
	case *v1alpha1.ApiKey:
		return o.Status.ObservedGeneration
	}
	return 0
}

func (f *fixture) awaitWaiting(key *v1alpha1.ApiKey) {
	GinkgoHelper()
	f.awaitStatus(key, kstatus.InProgressStatus, v1alpha1.ReasonMerchantNotFound)
}

// condition returns a condition of the object as it was read last; nil: it has none of that type.
func condition(object client.Object, kind string) *metav1.Condition {
	return meta.FindStatusCondition(conditionsOf(object), kind)
}

func (f *fixture) awaitStalled(object client.Object, reason string) {
	GinkgoHelper()
	f.awaitStatus(object, kstatus.FailedStatus, reason)
}

func (f *fixture) awaitFailed(object client.Object) {
	GinkgoHelper()
	f.awaitStatus(object, kstatus.InProgressStatus, v1alpha1.ReasonFailed)
}

func readyMessage(object client.Object) string {
	return meta.FindStatusCondition(conditionsOf(object), v1alpha1.ReadyCondition).Message
}

// readyReason is the reason of Ready; empty: it has no conditions yet.
func readyReason(object client.Object) string {
	if ready := meta.FindStatusCondition(conditionsOf(object), v1alpha1.ReadyCondition); ready != nil {
		return ready.Reason
	}
	return ""
}
