package payer

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/sys/unix"
)

// A phone that has lost its network closes nothing. Its stream ends when the kernel has sent a heartbeat in vain for half a minute, not for
// a quarter of an hour.
func TestTakeOver_ClientVanishes(t *testing.T) {
	set := make(chan int, 1) // in milliseconds
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, socket, err := takeOver(w)
		if err != nil {
			t.Error(err)
			close(set)
			return
		}
		defer func() { _ = conn.Close() }()
		err = socket.Control(func(fd uintptr) {
			milliseconds, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			if err != nil {
				t.Error(err)
			}
			set <- milliseconds
		})
		if err != nil {
			t.Error(err)
		}
	}))
	if response, err := server.Client().Get(server.URL); err == nil {
		_ = response.Body.Close()
		t.Errorf("the stream answered %s", response.Status)
	}
	defer server.Close()
	const want = 30_000
	if got := <-set; got != want {
		t.Errorf("data may stay unacknowledged for %d ms, want %d", got, want)
	}
}
