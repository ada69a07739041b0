package payer

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitUnacknowledged has the kernel end the connection after maxUnacknowledged.
func limitUnacknowledged(socket syscall.RawConn) error {
	var failed error
	err := socket.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(maxUnacknowledged.Milliseconds()))
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}
