// Package gitops runs the product with the real kustomize-controller of Flux: from an empty cluster to fifty merchants with the
// commands of docs/gitops.md, and then what a pipeline does to them, one commit after the other. `make gitops` compares what
// came of each with testdata/changes.txt; that page has those after which the Kustomization is not Ready.
package gitops
