package gitops

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestFindManager(t *testing.T) {
	for want, metadata := range map[string]metav1.ObjectMeta{
		"Argo CD, application shops":        {Annotations: map[string]string{"argocd.argoproj.io/tracking-id": "shops:merchant-operator.io/Merchant:shops/acme"}},
		"Argo CD, application old":          {Labels: map[string]string{"argocd.argoproj.io/instance": "old"}},
		"Flux, Kustomization flux-system/a": {Labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "a", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}},
		"Flux, HelmRelease apps/b":          {Labels: map[string]string{"helm.toolkit.fluxcd.io/name": "b", "helm.toolkit.fluxcd.io/namespace": "apps"}},
		"Argo CD, ":                         {ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "argocd-controller"}}},
		"Flux, ":                            {ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kustomize-controller"}}},
		", ":                                {ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl-client-side-apply"}}},
	} {
		if got := FindManager(&v1alpha1.Merchant{ObjectMeta: metadata}); got.Tool+", "+got.Source != want {
			t.Errorf("%+v: %+v, want %s", metadata, got, want)
		}
	}
}
