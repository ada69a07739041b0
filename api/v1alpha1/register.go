package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the API group and version of this package's kinds.
var SchemeGroupVersion = schema.GroupVersion{Group: "merchant-operator.io", Version: "v1alpha1"}

// AddToScheme registers Merchant and ApiKey and their lists with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &Merchant{}, &MerchantList{}, &ApiKey{}, &ApiKeyList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
