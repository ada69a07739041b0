// Package system tests the whole product: the operator and two API replicas, each with its own
// least-privilege account, on a real kube-apiserver and a real redis-server, seen only from outside,
// through kubectl-like writes and HTTP.
package system
