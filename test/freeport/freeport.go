// Package freeport chooses ports for servers that a test starts.
package freeport

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// The ports to choose from are below the range the kernel gives to outgoing connections: inside it, a client that redials
// while its server is stopped could be given the server's own port and be connected to itself, and
// another test's listener on port 0 could take the port before it is used.
const lowest, count = 10_000, 20_000

// walk is how far this process has come in the range. It starts anywhere, for other tests run at the same time.
var walk = sync.OnceValue(func() *atomic.Uint32 {
	var start [4]byte
	_, _ = rand.Read(start[:]) // it never fails
	var position atomic.Uint32
	position.Store(binary.LittleEndian.Uint32(start[:]) % count)
	return &position
})

// Choose returns a port of the loopback address that is free now, and that this process was not given before: what was
// chosen may not be listened on yet.
func Choose() (int, error) {
	const tries = 50
	for range tries {
		port := lowest + int(walk().Add(1)%count)
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, errors.New("choose a port: every one that was tried is taken")
}
