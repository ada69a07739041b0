// Package scrape guards the metrics and profiles of every role: who may read them is decided by Kubernetes, and they are read over
// TLS, for a token that travels in the clear is anybody's. It owns the guard, its answers and the certificate.
package scrape
