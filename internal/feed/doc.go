// Package feed owns what a merchant is told: events, their ids, their stored form and their body. It is pure: it knows
// contracts and sessions, neither Redis nor HTTP.
package feed
