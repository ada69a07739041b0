// Package apikey owns the API key: its grammar, how one is made, and its digest.
//
// A key reads mk_live_<key id>_<secret><checksum>. The key id is public and stays the same for the
// life of an ApiKey object; the secret is 32 random base62 characters; the checksum lets a typo, or
// a secret scanner's false hit, be refused without a look-up. Only digests are ever stored.
package apikey
