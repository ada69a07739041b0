// Package gitops finds out whether a GitOps tool manages an object, and would undo what a person changes in it.
package gitops

import (
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Manager is the GitOps tool that owns an object; the zero Manager: none.
type Manager struct {
	// Tool is Argo CD or Flux.
	Tool string
	// Source is the tool's object with the address of the repository; empty: unknown.
	Source string
}

// Where Argo CD and Flux write that an object is theirs.
const (
	argoTrackingAnnotation = "argocd.argoproj.io/tracking-id" // "app:group/Kind:namespace/name"
	argoInstanceLabel      = "argocd.argoproj.io/instance"
	fluxKustomization      = "kustomize.toolkit.fluxcd.io/"
	fluxHelmRelease        = "helm.toolkit.fluxcd.io/"
)

// argoManagers and fluxManagers are the field managers of the tools.
var (
	argoManagers = []string{"argocd-controller", "argocd-application-controller"}
	fluxManagers = []string{"kustomize-controller", "helm-controller"}
)

// Keys returns the labels and annotations that FindManager reads.
func Keys() []string {
	return []string{
		argoTrackingAnnotation, argoInstanceLabel,
		fluxKustomization + "name", fluxKustomization + "namespace", fluxHelmRelease + "name", fluxHelmRelease + "namespace",
	}
}

// Managers returns the field managers that FindManager looks for.
func Managers() []string { return slices.Concat(argoManagers, fluxManagers) }

// FindManager returns what would undo an edit of the object. Labels and annotations have more than the field manager, which is left
// when a tool is configured to write none.
func FindManager(object client.Object) Manager {
	labels := object.GetLabels()
	if id := object.GetAnnotations()[argoTrackingAnnotation]; id != "" {
		app, _, _ := strings.Cut(id, ":")
		return Manager{"Argo CD", "application " + app}
	}
	if app := labels[argoInstanceLabel]; app != "" {
		return Manager{"Argo CD", "application " + app}
	}
	if name := labels[fluxKustomization+"name"]; name != "" {
		return Manager{"Flux", "Kustomization " + labels[fluxKustomization+"namespace"] + "/" + name}
	}
	if name := labels[fluxHelmRelease+"name"]; name != "" {
		return Manager{"Flux", "HelmRelease " + labels[fluxHelmRelease+"namespace"] + "/" + name}
	}
	for _, entry := range object.GetManagedFields() {
		switch {
		case slices.Contains(argoManagers, entry.Manager):
			return Manager{Tool: "Argo CD"}
		case slices.Contains(fluxManagers, entry.Manager):
			return Manager{Tool: "Flux"}
		}
	}
	return Manager{}
}
