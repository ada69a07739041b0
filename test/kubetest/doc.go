// Package kubetest starts a real kube-apiserver with its etcd for tests, with this project's CRDs installed.
// There are no controllers, no kubelet and no scheduler: only the API, its storage, validation and access rules.
package kubetest
