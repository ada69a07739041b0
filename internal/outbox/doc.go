// Package outbox is the domain of what merchants are told: an event from the moment it is recorded, in
// the same step as the change it tells of, until it is delivered or given up. It knows neither Redis
// nor HTTP.
package outbox
