// Package feed owns what a merchant is notified of: events, their ids, their stored form and their body, and the cursor by which a
// consumer follows them. It is pure: it knows contracts and sessions, neither Redis nor HTTP.
package feed
