package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/freeport"
)

// Start starts a redis-server that belongs to t (GinkgoTB() will do) and stops with it. extraArgs are
// appended to the command line, as in "--maxmemory", "1mb". It fails t when the server cannot be started.
func Start(t testing.TB, extraArgs ...string) *Server {
	t.Helper()
	server, err := start(t.TempDir(), extraArgs)
	if err != nil {
		t.Fatal(err)
	}
	server.fatal = t.Fatal
	t.Cleanup(server.Stop)
	return server
}

// New starts a redis-server that belongs to no test, for TestMain: the caller runs the returned close
// function when the tests are over. The server's methods panic where those of Start's fail the test.
func New(extraArgs ...string) (server *Server, closeServer func(), err error) {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return nil, nil, fmt.Errorf("make a directory for redis-server: %w", err)
	}
	server, err = start(dir, extraArgs)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	server.fatal = func(args ...any) { panic(fmt.Sprint(args...)) }
	return server, func() {
		server.Stop()
		if err := os.RemoveAll(dir); err != nil {
			server.fatal(err)
		}
	}, nil
}

// start tries a few ports, as another process may take one between the choice and its use.
func start(dir string, extraArgs []string) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("this test needs redis-server; run `make redis` to install it: %w", err)
	}
	var failures []error
	for range 5 {
		port, err := freeport.Choose()
		if err != nil {
			return nil, err
		}
		server := &Server{binary: binary, dir: dir, port: port, extraArgs: extraArgs}
		if err = server.start(); err == nil {
			return server, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}
