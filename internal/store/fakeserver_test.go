package store_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fakeServer speaks just enough of the Redis protocol to fail in ways a real server cannot be told to.
type fakeServer struct {
	listener net.Listener
	// answer returns the raw reply to a command; an empty one closes the connection, as if the reply
	// had been lost after the command ran.
	answer func(words []string) string

	mu       sync.Mutex
	received map[string]int
}

func startFakeServer(t *testing.T, answer func(words []string) string) *fakeServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &fakeServer{listener: listener, answer: answer, received: map[string]int{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { server.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	return server
}

func (f *fakeServer) addr() string { return f.listener.Addr().String() }

// count returns how often the command came.
func (f *fakeServer) count(command string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received[command]
}

func (f *fakeServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for {
		words, err := readCommand(reader)
		if err != nil {
			return
		}
		command := strings.ToLower(words[0])
		f.mu.Lock()
		f.received[command]++
		f.mu.Unlock()
		reply := "-ERR unknown command\r\n" // to HELLO, after which the client goes on as with an old server
		if command != "hello" {
			reply = f.answer(words)
		}
		if reply == "" {
			return
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

func readCommand(reader *bufio.Reader) ([]string, error) {
	n, err := readLength(reader, '*')
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		length, err := readLength(reader, '$')
		if err != nil {
			return nil, err
		}
		word := make([]byte, length+2) // and the line's end
		if _, err := io.ReadFull(reader, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:length])
	}
	return words, nil
}

func readLength(reader *bufio.Reader, kind byte) (int, error) {
	line, err := reader.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("a line begins with %q, want %q", line[0], kind)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
