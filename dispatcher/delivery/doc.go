// Package delivery is one attempt to tell a merchant of one event: the body, which is a function of
// the event alone, its signatures as Standard Webhooks wants them, and the HTTP exchange with an
// endpoint that nobody has reason to trust. When to try, and how often, is decided by its caller.
package delivery
