// Package link is the way to Redis: which servers a URL names, how long to wait for them, and how callers share
// connections. It knows nothing of what is said over it.
package link
