// Package floor is what a request cannot do without, and nothing else: a bare handler of net/http, and the same with one call of a script that
// was recorded from the product. How far the product is above it is what the product costs.
package floor
