// Package orphans removes published objects that nobody answers for any more: their ApiKey or Merchant
// went without its finalizer, which somebody took away by hand or by force. Such a key would work for
// ever, and no kubectl command on a Merchant or an ApiKey could end it. It also removes tombstones, and
// the claims of an ApiKey that has ended, when they expire.
package orphans
