// Package attempt is the end of an event's way: it decides what to do with a leased event, sends it once, and records in Redis what became of it
// before the lease ends. It knows neither who leased the event nor where it waited.
package attempt
