//go:build !linux

package payer

import "syscall"

// limitUnacknowledged does nothing: other systems have no such limit, or another one.
func limitUnacknowledged(syscall.RawConn) error { return nil }
