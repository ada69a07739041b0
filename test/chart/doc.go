// Package chart renders charts/merchant-operator as Helm does, and asks a real kube-apiserver, the program itself and
// a real redis-server what the result means: that every toggle is accepted, that pods keep the security standard of their
// namespace, what each service account may do, and that wrong values are refused with a sentence that helps. It has
// only tests.
package chart
