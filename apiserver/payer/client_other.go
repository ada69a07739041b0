//go:build !unix

package payer

import "syscall"

// clientGone cannot be known here before a heartbeat fails.
func clientGone(syscall.RawConn) bool { return false }
