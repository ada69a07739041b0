// Package dnstest is a name server on loopback, whose answers a test changes as it likes: what
// somebody does who owns a name and wants to reach what is not theirs.
package dnstest
