// Package freeport chooses ports for servers that a test starts.
package freeport

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
)

// Choose returns a port of the loopback address that is free now. It is from below the range the
// kernel gives to outgoing connections: inside it, a client that redials while its server is stopped
// could be given the server's own port and be connected to itself, and another test's listener on
// port 0 could take the port before it is used.
func Choose() (int, error) {
	const lowest, count, tries = 10_000, 20_000, 50
	for range tries {
		offset, err := rand.Int(rand.Reader, big.NewInt(count))
		if err != nil {
			return 0, fmt.Errorf("choose a port: %w", err)
		}
		port := lowest + int(offset.Int64())
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			continue
		}
		return port, listener.Close()
	}
	return 0, errors.New("choose a port: every one that was tried is taken")
}
