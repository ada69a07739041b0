// Package directory knows whose key it is: it watches the published objects of the credentials
// namespace and indexes them by key digest, key id and merchant id. Look-ups are in memory and never
// wait for the Kubernetes API; when that is away, the directory answers with what it knew last.
// A published object that cannot be decoded opens nothing: what it said before is dropped.
package directory
