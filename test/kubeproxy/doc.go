// Package kubeproxy stands between one client and a kube-apiserver, so that a test can freeze the
// client's watches, as a partition or a stuck relist does, while its other calls go through; or cut
// it off altogether.
package kubeproxy
