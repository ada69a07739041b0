// Package subject owns what the operator does alike to every object it works for, Merchant or
// ApiKey: hold it by a finalizer, choose which of its changes matter, say in its conditions what a
// pass came to, and tell a lost race from a failure.
package subject
