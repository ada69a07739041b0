// Package faults tries to break what docs/guarantees.md promises. The roles are processes of their own here, that
// can be killed, frozen and cut off, between a real kube-apiserver, real redis-servers and a receiver of webhooks.
// Each fault is tried a number of times while clients go on as they would, and is a row of the table that
// `make faults` prints: what was promised, and what was seen.
package faults
