// Package logtest keeps what the code under test logs, from all its goroutines, so that a test can
// look for what must be there and for what must never be: a key.
package logtest

import (
	"bytes"
	"sync"
)

// Buffer is an io.Writer for a logger, safe for concurrent use. The zero Buffer is empty.
type Buffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// Write appends to the buffer and never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

// String returns all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
