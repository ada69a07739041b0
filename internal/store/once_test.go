package store_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// clusterOfOne answers as the one server of a Redis Cluster, and leaves scripts to the test.
func clusterOfOne(addr func() string, script func(words []string) string) func([]string) string {
	return func(words []string) string {
		switch strings.ToLower(words[0]) {
		case "evalsha", "eval":
			return script(words)
		case "cluster":
			host, port, _ := net.SplitHostPort(addr())
			return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$40\r\n%040d\r\n", len(host), host, port, 1)
		case "readonly", "ping":
			return "+OK\r\n"
		}
		return "-ERR unknown command\r\n"
	}
}

// A reply that is lost tells nothing about whether the script ran. Sent again by the client, it might
// run twice; so it is the caller who decides, with its Idempotency-Key.
func TestAScriptWhoseAnswerIsLostIsNotSentAgain(t *testing.T) {
	for _, form := range []string{"redis://", "redis+cluster://"} {
		for desc, reply := range map[string]string{
			"the connection ends":   "",
			"the server is loading": "-LOADING Redis is loading the dataset in memory\r\n",
			"the cluster is down":   "-CLUSTERDOWN The cluster is down\r\n",
			"keys are on their way": "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
			"the master is away":    "-MASTERDOWN Link with MASTER is down\r\n",
			"clients are too many":  "-ERR max number of clients reached\r\n",
			"replicas are missing":  "-NOREPLICAS Not enough good replicas to write.\r\n",
		} {
			var server *fakeServer
			server = startFakeServer(t, clusterOfOne(func() string { return server.addr() }, func([]string) string { return reply }))
			s := impatient(t, form+server.addr())
			_, _, err := s.CreateSession(t.Context(), merchant(), newSession())
			if !errors.Is(err, redis.ErrUnavailable) {
				t.Errorf("%s %s: %v, want ErrUnavailable", form, desc, err)
			}
			if n := server.count("evalsha") + server.count("eval"); n != 1 {
				t.Errorf("%s %s: the script was sent %d times", form, desc, n)
			}
		}
	}
}

// A server of a cluster that says where the slot has gone has run nothing. It is followed, but not forever.
func TestRedirectionsInCirclesEnd(t *testing.T) {
	for _, kind := range []string{"MOVED", "ASK"} {
		var server *fakeServer
		server = startFakeServer(t, clusterOfOne(func() string { return server.addr() }, func([]string) string {
			return fmt.Sprintf("-%s 1 %s\r\n", kind, server.addr())
		}))
		s := impatient(t, "redis+cluster://"+server.addr())
		_, err := s.Admit(t.Context(), merchant())
		if !errors.Is(err, redis.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", kind, err)
		}
		if n := server.count("evalsha"); n < 2 || n > 5 {
			t.Errorf("%s: followed %d times", kind, n)
		}
	}
}

// Redis quotes the command it does not like, and with it keys and digests.
func TestErrorsOfRedisAreNotQuoted(t *testing.T) {
	asks := merchant()
	server := startFakeServer(t, func(words []string) string {
		return fmt.Sprintf("-ERR unknown command '%s', with args beginning with: '%s'\r\n", words[0], strings.Join(words[1:], "' '"))
	})
	s := impatient(t, "redis://"+server.addr())
	_, err := s.Admit(t.Context(), asks)
	if !errors.Is(err, redis.ErrUnavailable) {
		t.Fatalf("%v, want ErrUnavailable", err)
	}
	for _, secret := range []string{asks.KeyID, asks.MerchantID, asks.Digest.Hex()} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error quotes the command: %v", err)
		}
	}
}

func TestAnswersOfAnotherShapeAreCorrupt(t *testing.T) {
	for _, reply := range []string{
		"*0\r\n", "*1\r\n$2\r\nOK\r\n", "*1\r\n$7\r\nLIMITED\r\n", "*1\r\n:1\r\n", "*1\r\n$5\r\nHELLO\r\n",
		"*4\r\n$2\r\nOK\r\n$1\r\nx\r\n:1\r\n:1\r\n", "*4\r\n$2\r\nOK\r\n:1\r\n:1\r\n*0\r\n", "*1\r\n$-1\r\n",
	} {
		server := startFakeServer(t, func([]string) string { return reply })
		s := impatient(t, "redis://"+server.addr())
		for name, operation := range operations {
			if admitted, err := operation(t.Context(), s, merchant()); !errors.Is(err, redis.ErrCorrupt) || admitted != (store.Admitted{}) {
				t.Errorf("%s: answer %q: %+v, %v; want ErrCorrupt", name, reply, admitted, err)
			}
		}
	}
}
