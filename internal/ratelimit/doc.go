// Package ratelimit owns the arithmetic of rate limits and how they are told to callers. Limits
// are GCRA (the generic cell rate algorithm): what is kept of a caller is one moment, the time by
// which all its requests so far are paid for. The package is pure; package store keeps the moment.
package ratelimit
