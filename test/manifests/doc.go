// Package manifests applies config/ to a real kube-apiserver and asks it what the result means: that it is
// accepted, that pods keep the security standard of their namespace, that Services reach them, and what
// each service account may do. It has only tests.
package manifests
