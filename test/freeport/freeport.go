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

// way is how this process walks through the range. It starts anywhere, for other tests run at the same time.
type way struct {
	position atomic.Uint32
	// step has no divisor in common with count, so each port comes once. Processes with different steps do not take the same ports one
	// after the other; nor do they take the ports of the buses of Redis Clusters, which are 10,000 above others.
	step uint32
}

var walk = sync.OnceValue(func() *way {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
	w := &way{step: 10*(binary.LittleEndian.Uint32(random[4:])%(count/10)) + 1}
	w.position.Store(binary.LittleEndian.Uint32(random[:]) % count)
	return w
})

func (w *way) next() int { return lowest + int(w.position.Add(w.step)%count) }

// Choose returns a port of the loopback address that is free now, and that this process was not given before: what was
// chosen may not be listened on yet.
func Choose() (int, error) {
	const tries = 50
	for range tries {
		port := walk().next()
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, errors.New("choose a port: every one that was tried is taken")
}
