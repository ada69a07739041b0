// Package payments has a session as its merchant sees it, for the API, the console and the plugin, and what a merchant asks about one
// day: when it begins and ends for the shop, its ended sessions as CSV, and their sums. It is pure: where the sessions come from is its
// caller's.
package payments
