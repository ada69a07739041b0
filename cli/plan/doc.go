// Package plan says what Merchants and ApiKeys lose when manifests are applied: which keys end or are replaced, which addresses are refused,
// which events are dropped. It reads manifests, tries them with dry runs of the API server, decides about objects before and after, and writes a
// report. What the tool that applies the manifests prunes or removes is unknown to it, and the report says so.
//
// Only command.go and dryrun.go know a cluster.
package plan
