// Package dispatcher is the dispatcher: it expires sessions whose time is over, and delivers what merchants are
// to be told. Any number of dispatchers share the work through Redis; none of them leads. What one of them
// holds when it crashes comes due again for the others. docs/design/webhooks.md tells the whole.
package dispatcher
