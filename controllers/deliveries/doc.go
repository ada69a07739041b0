// Package deliveries owns the Secrets that the operator writes beside a Merchant or an ApiKey, for
// the tenant to take: what marks them, whose they are, and that nobody else's is ever touched. What is
// in them is their owner's business.
package deliveries
