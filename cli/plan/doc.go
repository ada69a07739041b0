// Package plan says what Merchants and ApiKeys lose when manifests are applied: which keys end or are replaced, which addresses are refused,
// which events are dropped. It reads manifests, decides about objects before and after, and writes reports. It talks to no cluster.
package plan
