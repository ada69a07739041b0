package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// buildRoot makes what devenv needs of the repository, so that a `make run` in it is left alone.
func buildRoot(t *testing.T) string {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Fatal("this test needs a kube-apiserver; run `make test`, or export KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh)")
	}
	root := t.TempDir()
	config, err := filepath.Abs("../../config")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(config, filepath.Join(root, "config")); err != nil {
		t.Fatal(err)
	}
	for binary, source := range map[string]string{"merchant-operator": "../..", "devenv": ".", "receiver": "../receiver"} {
		if output, err := exec.Command("go", "build", "-o", filepath.Join(root, "bin", binary), source).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", binary, err, output)
		}
	}
	return root
}

// run is one devenv.
type run struct {
	root    string
	process *exec.Cmd
	ended   chan struct{}
	output  string // the file with what it says
}

func start(t *testing.T, root string, env ...string) *run {
	t.Helper()
	output, err := os.CreateTemp(root, "output")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = output.Close() }()
	r := &run{root: root, process: exec.Command(filepath.Join(root, "bin", "devenv")), ended: make(chan struct{}), output: output.Name()}
	r.process.Dir = root
	r.process.Env = append(os.Environ(), env...)
	r.process.Stdout, r.process.Stderr = output, output
	if err := r.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.process.Wait()
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.process.Process.Signal(syscall.SIGTERM)
		<-r.ended
	})
	return r
}

func (r *run) exitCode() int { return r.process.ProcessState.ExitCode() }

func (r *run) said(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(r.output)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// waitForEnv reads .dev/env as soon as there is one.
func (r *run) waitForEnv(t *testing.T) map[string]string {
	t.Helper()
	var content []byte
	waitUntil(t, ".dev/env is there", func() bool {
		select {
		case <-r.ended:
			t.Fatalf("it ended; it said:\n%s", r.said(t))
		default:
		}
		var err error
		content, err = os.ReadFile(filepath.Join(r.root, ".dev", "env"))
		return err == nil
	})
	env := map[string]string{}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		env[name] = value
	}
	return env
}

// waitUntil is generous: nothing here takes as long on an idle machine.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		case <-ticker.C:
		}
	}
}

// listeners are the addresses that env names, the Kubernetes API's among them.
func listeners(t *testing.T, env map[string]string) (hosts []string) {
	t.Helper()
	kubernetes, err := clientcmd.BuildConfigFromFlags("", env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{kubernetes.Host, env["API_URL"], env["API_URL_2"], env["INTERNAL_URL"], env["REDIS_URL"], env["WEBHOOK_SINK_URL"]} {
		parsed, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if !anyListens([]string{parsed.Host}) {
			t.Errorf("nothing listens on %s", address)
		}
		hosts = append(hosts, parsed.Host)
	}
	return hosts
}

// anyListens says whether one of the addresses accepts connections.
func anyListens(hosts []string) bool {
	for _, host := range hosts {
		if conn, err := net.DialTimeout("tcp", host, time.Second); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

func request(t *testing.T, method, address, key, body string, want int, answer any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != want {
		t.Fatalf("%s %s: %s: %s", method, address, response.Status, text)
	}
	if answer != nil {
		if err := json.Unmarshal(text, answer); err != nil {
			t.Fatal(err)
		}
	}
}
