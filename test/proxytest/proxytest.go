// Package proxytest starts real proxies: nginx and Caddy.
package proxytest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
)

const patience = 30 * time.Second

// Nginx runs nginx with a configuration until the end of the test, and waits until it listens on the address. It has settings that a
// process without root needs; they are before those of http.
func Nginx(t testing.TB, address, configuration string) {
	t.Helper()
	dir := t.TempDir()
	file := write(t, dir, "nginx.conf", "daemon off; pid nginx.pid; error_log stderr;\n"+configuration)
	run(t, address, dir, "nginx", "-p", dir, "-c", file, "-e", "stderr")
}

// NginxTemporary are settings of http for a process that may write into its own directory only.
const NginxTemporary = "access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n"

// Caddy runs Caddy with a Caddyfile until the end of the test, and waits until it listens on the address.
func Caddy(t testing.TB, address, caddyfile string) {
	t.Helper()
	dir := t.TempDir()
	file := write(t, dir, "Caddyfile", "{\n\tadmin off\n\tauto_https off\n\tstorage file_system "+dir+"\n\tlog {\n\t\tlevel ERROR\n\t}\n}\n"+caddyfile)
	run(t, address, dir, "caddy", "run", "--adapter", "caddyfile", "--config", file)
}

func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// run starts a proxy. Debian installs nginx where only root looks for programs.
func run(t testing.TB, address, dir, program string, arguments ...string) {
	t.Helper()
	binary, err := exec.LookPath(program)
	if err != nil {
		if binary, err = exec.LookPath("/usr/sbin/" + program); err != nil {
			t.Fatalf("find %s: %v; run `hack/install.sh proxies` to install it", program, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	process := exec.CommandContext(ctx, binary, arguments...)
	process.Dir, process.Env = dir, append(os.Environ(), "HOME="+dir)
	process.Stdout, process.Stderr = t.Output(), t.Output()
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) } // which ends workers too
	process.WaitDelay = patience
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = process.Wait() // it was stopped
	})
	await.Until(t, patience, program+" listens", func() bool {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return connection.Close() == nil
	})
}
