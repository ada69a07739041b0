// Package lease is the beginning of an event's way: it leases due events of a bucket, so that no other dispatcher takes them for a while, has each
// decided about, and hands those to be sent to the queue. It also knows the merchants none of whose events can be sent now, and leases nothing of them.
package lease
