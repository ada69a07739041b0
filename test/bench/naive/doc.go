// Package naive is the create of a payment session as most teams write it at first: correct for one request at a time, one trip to
// Redis for each thought, a client with its defaults. It is what the product is compared with, and nobody's to use.
package naive
