// Package apikeys owns the life of an API key in the cluster: when a new one is made, how it reaches
// the tenant and the data plane in an order that no crash can break, and how it ends.
//
// A pass gathers facts, decides on them (decide is pure), and applies the plan. The published record
// is the truth about a key; docs/design/operator.md says why and what follows from it.
package apikeys
