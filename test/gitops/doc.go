// Package gitops checks that the tools which roll out manifests read the status of Merchants and
// ApiKeys as it is meant: Argo CD through its Lua health check, Flux and kubectl through kstatus.
package gitops
