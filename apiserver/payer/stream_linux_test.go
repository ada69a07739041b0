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
	var milliseconds int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, socket, err := takeOver(w)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		err = socket.Control(func(fd uintptr) {
			if milliseconds, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}))
	if response, err := server.Client().Get(server.URL); err == nil {
		_ = response.Body.Close()
		t.Errorf("the stream answered %s", response.Status)
	}
	server.Close()
	const want = 30_000
	if milliseconds != want {
		t.Errorf("data may stay unacknowledged for %d ms, want %d", milliseconds, want)
	}
}
