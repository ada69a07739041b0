// Package httpserver owns what every listener of the data plane has in common: limits for clients that
// hold a connection for nothing, and one shape for all errors, also for those that net/http answers by
// itself.
package httpserver
