package kube

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// NewMapper returns a mapper of the kinds that roles and commands read and write with clients and caches of
// controller-runtime. It asks nobody: a role that starts while the Kubernetes API is away would end with an error,
// again and again, and the kubelet would start it later and later. With this mapper it waits for its caches.
func NewMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for resource, kind := range map[string]schema.GroupVersionKind{
		"merchants":   v1alpha1.SchemeGroupVersion.WithKind("Merchant"),
		"apikeys":     v1alpha1.SchemeGroupVersion.WithKind("ApiKey"),
		"secrets":     corev1.SchemeGroupVersion.WithKind("Secret"),
		"configmaps":  corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		"pods":        corev1.SchemeGroupVersion.WithKind("Pod"),
		"deployments": appsv1.SchemeGroupVersion.WithKind("Deployment"),
		"events":      eventsv1.SchemeGroupVersion.WithKind("Event"),
	} {
		plural := kind.GroupVersion().WithResource(resource)
		mapper.AddSpecific(kind, plural, plural, meta.RESTScopeNamespace) // nobody asks for a singular
		mapper.AddSpecific(kind.GroupVersion().WithKind(kind.Kind+"List"), plural, plural, meta.RESTScopeNamespace)
	}
	return mapper
}
