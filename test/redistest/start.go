// Package redistest runs a real redis-server for a test, or whatever server REDIS_SERVER names: its own process on its own
// loopback port, without persistence, that the test can stop, start again and freeze. It fails, and never skips, when
// there is no such server, for a test that did not run has promised nothing.
package redistest

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/leaks"
)

// Start starts a Redis server that belongs to t (GinkgoTB() will do) and stops with it. extraArgs are
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

// StartSentinel starts a Sentinel that belongs to t, with lines of its configuration.
func StartSentinel(t testing.TB, settings ...string) *Server {
	t.Helper()
	binary, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Choose()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// A Sentinel writes what it learns into its configuration.
	server := &Server{binary: binary, dir: dir, port: port, sentinel: filepath.Join(dir, "sentinel.conf"), fatal: t.Fatal}
	lines := append([]string{"bind " + loopback.String(), fmt.Sprint("port ", port)}, settings...)
	if err := os.WriteFile(server.sentinel, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.start(); err != nil {
		t.Fatal(err)
	}
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

// Main is the TestMain of a package whose tests share one server: prepare gets it before they run. It also looks for goroutines
// that the tests have left behind.
func Main(m *testing.M, prepare func(*Server)) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	server, closeServer, err := New()
	if err != nil {
		log.Fatal(err)
	}
	prepare(server)
	leaks.Run(m, func() error { closeServer(); return nil })
}

// Binary finds the server to run: what the variable REDIS_SERVER names, a name on the PATH or an absolute path, else
// redis-server. Any server of that family will do, also as a Sentinel and in a cluster.
func Binary() (string, error) {
	name := cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server")
	path, err := exec.LookPath(name)
	switch {
	case err != nil && name == "redis-server":
		return "", fmt.Errorf("find redis-server: %w; run `hack/install.sh redis` to install it, or name another server with REDIS_SERVER", err)
	case err != nil:
		return "", fmt.Errorf("find the server that REDIS_SERVER names: %w", err)
	case !filepath.IsAbs(path): // tests run in the directory of their package
		return "", fmt.Errorf("REDIS_SERVER=%s is a relative path; use an absolute one, or a name on the PATH", name)
	}
	return path, nil
}

// start tries a few ports, as another process may take one between the choice and its use.
func start(dir string, extraArgs []string, environment ...string) (*Server, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	var failures []error
	for range 5 {
		port, err := freeport.Choose()
		if err != nil {
			return nil, err
		}
		server := &Server{binary: binary, dir: dir, port: port, extraArgs: extraArgs, environment: environment}
		if err = server.start(); err == nil {
			return server, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}
