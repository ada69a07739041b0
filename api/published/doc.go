// Package published is the contract between the operator and the data plane: the objects the
// operator writes into the credentials namespace and the API reads from it.
//
// A key is a Secret key-<key id> with a KeyRecord; a merchant is a ConfigMap merchant-<id> with a
// MerchantRecord; what its events are signed with is a Secret webhook-<id> with a WebhookRecord. The
// end of a key or merchant is a ConfigMap tombstone-key-<key id> or tombstone-merchant-<id> with a
// Tombstone. The claim to the digest of an externally generated key is a Secret digest-<hash> with a
// DigestClaim. The package owns their names, labels, encoding and checks, and what a rotation does to
// a record. Records carry a version: a reader refuses a newer one with ErrNewerVersion rather than
// guess, and ignores fields it does not know.
package published
