// Package dnstest is a name server on loopback, whose answers a test changes as it likes: what
// somebody does who owns a name and wants to reach what is not theirs.
package dnstest

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Server answers for the names it was given, and that there is no such name for all others.
type Server struct {
	conn net.PacketConn
	mu   sync.Mutex
	zone map[string][]netip.Addr
	lose int // of the next queries
}

// Start returns a Server that runs until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return start(t, conn)
}

func start(t testing.TB, conn net.PacketConn) *Server {
	t.Helper()
	server := &Server{conn: conn, zone: map[string][]netip.Addr{}}
	var serving sync.WaitGroup
	serving.Go(func() { server.serve(t.Errorf) })
	t.Cleanup(func() {
		_ = conn.Close()
		serving.Wait()
	})
	return server
}

// Set makes a name, written without the last dot, mean these addresses from now on.
func (s *Server) Set(name string, addresses ...string) {
	parsed := make([]netip.Addr, 0, len(addresses))
	for _, address := range addresses {
		parsed = append(parsed, netip.MustParseAddr(address))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone[name] = parsed
}

// Lose gives no answer to so many of the next queries.
func (s *Server) Lose(queries int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = queries
}

// Losing is how many queries are still to get no answer.
func (s *Server) Losing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lose
}

// Resolver asks this server and no other.
func (s *Server) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *Server) serve(complain func(format string, args ...any)) {
	packet := make([]byte, 1024)
	for {
		n, client, err := s.conn.ReadFrom(packet)
		if err != nil {
			return // closed
		}
		var query dnsmessage.Message
		if err := query.Unpack(packet[:n]); err != nil || len(query.Questions) != 1 {
			complain("a query that is none: %v", err)
			continue
		}
		if s.loses() {
			continue
		}
		answer, err := s.answer(query).Pack()
		if err != nil {
			complain("pack an answer: %v", err)
			continue
		}
		_, _ = s.conn.WriteTo(answer, client)
	}
}

func (s *Server) loses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.lose > 0
	s.lose = max(0, s.lose-1)
	return lost
}

func (s *Server) answer(query dnsmessage.Message) *dnsmessage.Message {
	question := query.Questions[0]
	s.mu.Lock()
	addresses, known := s.zone[strings.TrimSuffix(question.Name.String(), ".")]
	s.mu.Unlock()
	answer := &dnsmessage.Message{
		Header:    dnsmessage.Header{ID: query.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: query.Questions,
	}
	if !known {
		answer.RCode = dnsmessage.RCodeNameError
	}
	for _, address := range addresses {
		header := dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class}
		switch {
		case question.Type == dnsmessage.TypeA && address.Is4():
			answer.Answers = append(answer.Answers, dnsmessage.Resource{
				Header: header, Body: &dnsmessage.AResource{A: address.As4()},
			})
		case question.Type == dnsmessage.TypeAAAA && address.Is6():
			answer.Answers = append(answer.Answers, dnsmessage.Resource{
				Header: header, Body: &dnsmessage.AAAAResource{AAAA: address.As16()},
			})
		}
	}
	return answer
}
