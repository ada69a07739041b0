package directory

import "github.com/merchant-operator/merchant-operator/api/published"

// Announcer is told what the watch of keys brings before the directory acts on it. It makes the news
// known to replicas that have not heard them, so that no replica refuses a key which another one
// accepts afterwards. Its methods are called in the order of the news, one at a time. The records are no
// more than what tells whose the key is, its revision, and which digests it accepts.
type Announcer interface {
	// Announce says that a key's record rose to a newer revision.
	Announce(record published.KeyRecord)
	// Revoke says that a key is no more: its published object is gone, cannot be decoded, or is of
	// another merchant now. The record is the last that was known of it.
	Revoke(record published.KeyRecord)
}

// announce tells what is new about a key; next is nil when it is no more. A key seen for the first
// time is no news: nobody can hold anything older about it.
func (d *Directory) announce(name string, next *key) {
	d.mu.RLock()
	earlier, known := d.index.keys[name]
	d.mu.RUnlock()
	if !known {
		return
	}
	if next == nil || next.merchant != earlier.merchant {
		d.announcer.Revoke(earlier.record())
	}
	if next != nil && next.revision > earlier.revision {
		d.announcer.Announce(next.record())
	}
}
