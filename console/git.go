package console

import (
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// manager is the GitOps tool that owns an object; the zero manager: none.
type manager struct{ Tool, Source string }

// Where Argo CD and Flux write that an object is theirs.
const (
	argoTrackingAnnotation = "argocd.argoproj.io/tracking-id" // "app:group/Kind:namespace/name"
	argoInstanceLabel      = "argocd.argoproj.io/instance"
	fluxKustomization      = "kustomize.toolkit.fluxcd.io/"
	fluxHelmRelease        = "helm.toolkit.fluxcd.io/"
)

// gitManager says who would undo an edit of the object. Labels and annotations say more than the field manager, which is left
// when a tool is configured to write none.
func gitManager(object client.Object) manager {
	labels := object.GetLabels()
	if id := object.GetAnnotations()[argoTrackingAnnotation]; id != "" {
		app, _, _ := strings.Cut(id, ":")
		return manager{"Argo CD", "application " + app}
	}
	if app := labels[argoInstanceLabel]; app != "" {
		return manager{"Argo CD", "application " + app}
	}
	if name := labels[fluxKustomization+"name"]; name != "" {
		return manager{"Flux", "Kustomization " + labels[fluxKustomization+"namespace"] + "/" + name}
	}
	if name := labels[fluxHelmRelease+"name"]; name != "" {
		return manager{"Flux", "HelmRelease " + labels[fluxHelmRelease+"namespace"] + "/" + name}
	}
	for _, entry := range object.GetManagedFields() {
		switch {
		case slices.Contains([]string{"argocd-controller", "argocd-application-controller"}, entry.Manager):
			return manager{Tool: "Argo CD"}
		case slices.Contains([]string{"kustomize-controller", "helm-controller"}, entry.Manager):
			return manager{Tool: "Flux"}
		}
	}
	return manager{}
}
