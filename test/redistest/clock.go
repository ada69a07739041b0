package redistest

import (
	_ "embed" // testdata/clock.c
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

//go:embed testdata/clock.c
var clockSource []byte

// StartAhead is Start for a server whose clock is ahead by so much, to the second; behind, if it is negative. It needs Linux and a C
// compiler.
func StartAhead(t testing.TB, ahead time.Duration, extraArgs ...string) *Server {
	t.Helper()
	code, err := clock()
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(t.TempDir(), "clock.so")
	if err := os.WriteFile(library, code, 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := start(t.TempDir(), extraArgs, "LD_PRELOAD="+library, fmt.Sprintf("CLOCK_AHEAD=%d", int64(ahead.Seconds())))
	if err != nil {
		t.Fatal(err)
	}
	server.fatal = t.Fatal
	t.Cleanup(server.Stop)
	return server
}

// clock returns the library that moves a server's clock, which is compiled once.
var clock = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "clock")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	if output, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the clock of a server: %w; `hack/install.sh compiler` installs a C compiler\n%s", err, output)
	}
	return os.ReadFile(library)
})
