//go:build unix

package payer

import (
	"errors"
	"syscall"
)

// clientGone reports whether the client of a stream has closed the connection, or sends something, which ends the stream too. It does not
// wait.
func clientGone(socket syscall.RawConn) bool {
	gone := false
	err := socket.Read(func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), make([]byte, 1))
		gone = !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
		return true
	})
	return gone || err != nil
}
