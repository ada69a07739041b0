// Package v1alpha1 has the custom resources Merchant and ApiKey.
//
// All validation is in OpenAPI markers and CEL expressions, so the API server refuses a bad object with a message that
// names the field. There is no admission webhook.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="applyconfiguration"
// +groupName=merchant-operator.io
package v1alpha1
