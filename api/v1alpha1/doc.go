// Package v1alpha1 holds the custom resources a platform team applies: Merchant and ApiKey.
//
// Every rule a manifest must keep is written here as an OpenAPI marker or a CEL expression, so the
// API server refuses a bad object with a message that names the field. There is no admission webhook.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="applyconfiguration"
// +groupName=merchant-operator.io
package v1alpha1
