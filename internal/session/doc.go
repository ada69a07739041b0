// Package session owns the domain of a payment session: what may be charged, how a session is
// named, which states it has and what ends it, and when two create requests are the same charge. It
// is pure and imports the standard library only: it knows neither HTTP nor Redis.
package session
