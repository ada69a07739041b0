// Package feeds brings published objects from the watches of the Kubernetes API into an index, one feed
// for each kind of object. It owns what is the same for every index: the first list, what is done about
// an object that cannot be decoded, and how far behind the watches may be.
package feeds
