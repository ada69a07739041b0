// Package freeport chooses ports for servers that a test starts.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// The ports to choose from are below the range the kernel gives to outgoing connections: inside it, a client that redials
// while its server is stopped could be given the server's own port and be connected to itself, and
// another test's listener on port 0 could take the port before it is used. A server of a Redis Cluster also listens on the
// port 10,000 above its own, which is no port to choose.
const lowest, count = 10_000, 10_000

// reserved are the locked files of the ports that this process was given: what was chosen may not be listened on yet, or may be
// stopped to be started again, so it stays this process's until it ends.
var reserved struct {
	sync.Mutex
	files map[int]*os.File
}

// Choose returns a port of the loopback address that is free now, and that no test was given whose process still runs.
func Choose() (int, error) {
	reserved.Lock()
	defer reserved.Unlock()
	directory := filepath.Join(os.TempDir(), "merchant-operator-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(directory, 0o777); err != nil {
		return 0, fmt.Errorf("choose a port: %w", err)
	}
	const tries = 50
	for range tries {
		port := lowest + rand.IntN(count)
		if reserved.files[port] != nil || !isFree(port) {
			continue
		}
		file, err := reserve(filepath.Join(directory, strconv.Itoa(port)))
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("choose a port: %w", err)
		}
		if reserved.files == nil {
			reserved.files = map[int]*os.File{}
		}
		reserved.files[port] = file
		return port, nil
	}
	return 0, errors.New("choose a port: every one that was tried is taken")
}

// reserve fails with EWOULDBLOCK while another process holds the file. The kernel unlocks it when this process ends.
func reserve(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func isFree(port int) bool {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	return err == nil && listener.Close() == nil
}
