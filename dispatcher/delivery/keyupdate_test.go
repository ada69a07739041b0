package delivery_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
)

// An endpoint that asks for new keys, sixteen times for each byte of an endless header, is given up before the answers cost much. It reads
// the answers, or does not: then they fill the buffers, and what waits to send one more must not hold up the end of the attempt.
func TestSend_KeyUpdates(t *testing.T) {
	for name, reads := range map[string]bool{"answers are read": true, "answers are not read": false} {
		t.Run(name, func(t *testing.T) {
			endpoint := newRekeying(t, reads)
			options := endpoint.trusting()
			options.Timeout = delivery.Timeout
			c := client(t, options)
			returned := make(chan string, 1)
			go func() { returned <- c.Send(t.Context(), attempt(overTLS(endpoint.address))).Reason }()
			select {
			case reason := <-returned:
				if reason != "no_answer" {
					t.Errorf("reason %s, want no_answer", reason)
				}
			case <-time.After(2 * delivery.Timeout):
				t.Fatal("the attempt has not ended")
			}
			if got := endpoint.received.Load(); got > 64<<10 {
				t.Errorf("the endpoint made the client send %d bytes", got)
			}
		})
	}
}

// rekeying is an endpoint over TLS 1.3 that asks for new keys without end.
type rekeying struct {
	*receiver

	address  string
	received atomic.Int64 // bytes behind the handshake
}

func newRekeying(t *testing.T, reads bool) *rekeying {
	t.Helper()
	endpoint := &rekeying{receiver: receive(t, status(200))}
	// Small segments and a window of this size keep the client's send buffer small.
	small := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536)
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 128<<10)
		})
	}}
	listener, err := small.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint.address = listener.Addr().String()
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	serving.Go(func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = connection.Close() }()
		stop := closeAtEnd(t, connection)
		defer stop()
		var keys bytes.Buffer
		handshake := tls.Server(connection, &tls.Config{
			Certificates: endpoint.TLS.Certificates, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, KeyLogWriter: &keys,
		})
		if _, err := handshake.Read(make([]byte, 1)); err != nil { // the request
			t.Error(err)
			return
		}
		if reads {
			serving.Go(func() {
				n, _ := io.Copy(io.Discard, connection)
				endpoint.received.Store(n)
			})
		}
		floodKeyUpdates(connection, trafficSecret(t, keys.String()))
	})
	return endpoint
}

// closeAtEnd closes the connection when the test ends, so that a failed test ends.
func closeAtEnd(t *testing.T, connection net.Conn) func() {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		select {
		case <-t.Context().Done():
			_ = connection.Close()
		case <-ended:
		}
	}()
	return func() { close(ended) }
}

// floodKeyUpdates answers with a header that never ends, until the connection does.
func floodKeyUpdates(connection net.Conn, secret []byte) {
	records := newRecordWriter(secret)
	begin := []byte("HTTP/1.1 200 OK\r\nX: ")
	for sent := 0; ; {
		var flight []byte
		for range 64 {
			next := byte('a')
			switch {
			case sent < len(begin):
				next = begin[sent]
			case sent%512 == 1:
				next = ':'
			case sent%512 == 511:
				next = '\n'
			}
			sent++
			for range 15 {
				flight = records.keyUpdate(flight)
			}
			flight = records.append(flight, recordApplicationData, []byte{next})
		}
		if _, err := connection.Write(flight); err != nil {
			return
		}
	}
}

const recordHandshake, recordApplicationData = 22, 23

// recordWriter encrypts the records of a TLS 1.3 server, because crypto/tls sends no KeyUpdate (RFC 8446, section 4.6.3).
type recordWriter struct {
	secret, iv []byte
	aead       cipher.AEAD
	sequence   uint64
}

func newRecordWriter(secret []byte) *recordWriter {
	block, err := aes.NewCipher(expandLabel(secret, "key", 16))
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return &recordWriter{secret: secret, iv: expandLabel(secret, "iv", 12), aead: aead}
}

func (w *recordWriter) append(into []byte, kind byte, content []byte) []byte {
	plain := append(bytes.Clone(content), kind)
	header := binary.BigEndian.AppendUint16([]byte{recordApplicationData, 3, 3}, uint16(len(plain)+w.aead.Overhead()))
	nonce := make([]byte, 12)
	binary.BigEndian.PutUint64(nonce[4:], w.sequence)
	for i := range nonce {
		nonce[i] ^= w.iv[i]
	}
	w.sequence++
	return w.aead.Seal(append(into, header...), nonce, plain, header)
}

// keyUpdate appends a KeyUpdate that asks for one, and writes with the next keys after it.
func (w *recordWriter) keyUpdate(into []byte) []byte {
	into = w.append(into, recordHandshake, []byte{24, 0, 0, 1, 1})
	*w = *newRecordWriter(expandLabel(w.secret, "traffic upd", sha256.Size))
	return into
}

// expandLabel is HKDF-Expand-Label of RFC 8446, section 7.1, without a context.
func expandLabel(secret []byte, label string, length int) []byte {
	label = "tls13 " + label
	info := append(binary.BigEndian.AppendUint16(nil, uint16(length)), byte(len(label)))
	expanded, err := hkdf.Expand(sha256.New, secret, string(info)+label+"\x00", length)
	if err != nil {
		panic(err)
	}
	return expanded
}

// trafficSecret finds the server's secret in the text of a KeyLogWriter.
func trafficSecret(t *testing.T, log string) []byte {
	t.Helper()
	for line := range strings.Lines(log) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "SERVER_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(fields[2])
			if err != nil {
				t.Error(err)
			}
			return secret
		}
	}
	t.Error("no secret of the server")
	return nil
}
