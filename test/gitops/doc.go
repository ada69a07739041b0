// Package gitops runs the product with the real kustomize-controller of Flux: from an empty cluster to fifty merchants with the
// commands of docs/gitops.md, and then what a pipeline does to them, one commit after the other. `make gitops` prints the table of
// what came of each, which is on that page.
package gitops
