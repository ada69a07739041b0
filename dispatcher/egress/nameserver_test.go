package egress

import (
	"io"
	"net"
	"testing"
)

// Who owns a name may answer with thousands of addresses.
func TestDialNameServer_LargeAnswer(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		connection, err := server.Accept()
		if err == nil {
			_, _ = connection.Write(make([]byte, 64<<10))
			_ = connection.Close()
		}
	}()
	connection, err := dialNameServer(t.Context(), "tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if read, err := io.Copy(io.Discard, connection); read != maxNameAnswer || err != nil {
		t.Errorf("read %d bytes, %v; want %d", read, err, maxNameAnswer)
	}
}
