// Package observability tests what the programs show of themselves: metrics of every role against the conventions and
// against docs/observability.md, alerts and dashboards against the metrics, and spans against everything that must not
// be in them.
package observability
