// Package ops is what a role of the data plane shows to those who run it, on a port of its own: health,
// readiness and metrics.
package ops
