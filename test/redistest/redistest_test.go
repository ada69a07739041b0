package redistest_test

import (
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// say sends one inline command and returns what the server answers within the given time.
func say(t *testing.T, server *redistest.Server, command string, within time.Duration) (string, error) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", server.Addr(), within)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	answer := make([]byte, 4096)
	n, err := conn.Read(answer)
	return string(answer[:n]), err
}

func mustSay(t *testing.T, server *redistest.Server, command, want string) {
	t.Helper()
	answer, err := say(t, server, command, 10*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	if !strings.Contains(answer, want) {
		t.Fatalf("%s answered %q, want %q", command, answer, want)
	}
}

// The suites run on whatever server a person or CI names.
func TestTheServerIsTheOneThatIsNamed(t *testing.T) {
	named := filepath.Join(t.TempDir(), "another-server")
	binary, err := redistest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nexec " + binary + ` "$@" --maxclients 55` + "\n"
	if err := os.WriteFile(named, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REDIS_SERVER", named)
	mustSay(t, redistest.Start(t), "CONFIG GET maxclients", "55")

	t.Chdir(filepath.Dir(named))
	t.Setenv("REDIS_SERVER", "./another-server")
	if _, err := redistest.Binary(); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("a relative path: %v, want an error that asks for an absolute one", err)
	}
}

func TestANamedServerThatIsMissingFails(t *testing.T) {
	for _, name := range []string{"/no/such/server", "no-such-server"} {
		t.Setenv("REDIS_SERVER", name)
		if _, err := redistest.Binary(); err == nil || !strings.Contains(err.Error(), "REDIS_SERVER") {
			t.Errorf("REDIS_SERVER=%s: %v, want an error that names the variable", name, err)
		}
	}
	t.Setenv("REDIS_SERVER", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := redistest.Binary(); err == nil || !strings.Contains(err.Error(), "hack/install.sh redis") {
		t.Errorf("without any server: %v, want an error that says how to install one", err)
	}
}

func TestServerEvictsNothingAndTakesExtraArguments(t *testing.T) {
	server := redistest.Start(t, "--maxclients", "77")
	mustSay(t, server, "CONFIG GET maxmemory-policy", "noeviction")
	mustSay(t, server, "CONFIG GET maxclients", "77")
	mustSay(t, server, "CONFIG GET save", "$0")
	if want := (&url.URL{Scheme: "redis", Host: server.Addr(), Path: "/0"}).String(); server.URL() != want {
		t.Errorf("URL() = %q, want %q", server.URL(), want)
	}
}

func TestServerComesBackEmptyOnTheSamePort(t *testing.T) {
	server := redistest.Start(t)
	before := server.Addr()
	mustSay(t, server, "SET key value", "+OK")

	server.Stop()
	if answer, err := say(t, server, "PING", time.Second); err == nil {
		t.Fatalf("a stopped server answered %q", answer)
	}
	server.Stop() // twice is once

	server.Start()
	if server.Addr() != before {
		t.Errorf("Addr() = %q after a restart, want %q", server.Addr(), before)
	}
	mustSay(t, server, "EXISTS key", ":0")
}

func TestAKilledServerKeepsWhatItHasWritten(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	mustSay(t, server, "SET key value", "+OK")
	server.Kill()
	if answer, err := say(t, server, "PING", time.Second); err == nil {
		t.Fatalf("a killed server answered %q", answer)
	}
	server.Kill() // twice is once
	server.Start()
	mustSay(t, server, "EXISTS key", ":1")
}

func TestPausedServerKeepsSilentUntilResumed(t *testing.T) {
	server := redistest.Start(t)
	server.Pause()
	if answer, err := say(t, server, "PING", 100*time.Millisecond); err == nil {
		t.Fatalf("a paused server answered %q", answer)
	}
	server.Resume()
	mustSay(t, server, "PING", "+PONG")
	server.Pause() // and one that is left paused must still stop when the test ends
}

func TestStartAhead(t *testing.T) {
	for _, ahead := range []time.Duration{24 * time.Hour, -time.Hour} {
		server := redistest.StartAhead(t, ahead)
		answer, err := say(t, server, "TIME", 10*time.Second)
		lines := strings.Split(answer, "\r\n")
		if err != nil || len(lines) < 3 {
			t.Fatalf("TIME answered %q, %v", answer, err)
		}
		seconds, err := strconv.ParseInt(lines[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if off := time.Until(time.Unix(seconds, 0)) - ahead; off.Abs() > 10*time.Second {
			t.Errorf("the clock is %s from %s ahead", off, ahead)
		}
		mustSay(t, server, "SET key value PX 60000", "+OK")
		mustSay(t, server, "EXISTS key", ":1")
	}
}

func TestNewBelongsToNoTest(t *testing.T) {
	server, closeServer, err := redistest.New()
	if err != nil {
		t.Fatal(err)
	}
	mustSay(t, server, "PING", "+PONG")
	closeServer()
	if answer, err := say(t, server, "PING", time.Second); err == nil {
		t.Fatalf("a closed server answered %q", answer)
	}
}
