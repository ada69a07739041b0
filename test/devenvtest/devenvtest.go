// Package devenvtest runs what `make run` runs, for tests: the whole product as its own processes.
package devenvtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// patience is generous: nothing here takes as long on an idle machine.
const patience = 2 * time.Minute

// Build makes a directory with what `make run` needs of the repository, so that a `make run` in the repository is left alone.
func Build(t testing.TB) (root string) {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Fatal("this test needs a kube-apiserver; run `make test`, or export KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh)")
	}
	root = t.TempDir()
	bin := filepath.Join(root, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		filepath.Join(root, "config"):          repository.Path("config"),
		filepath.Join(root, "examples"):        repository.Path("examples"),
		filepath.Join(bin, "kubectl"):          filepath.Join(assets, "kubectl"),
		filepath.Join(bin, "kubectl-merchant"): "merchant-operator",
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	for program, directory := range map[string]string{"merchant-operator": ".", "devenv": "hack/devenv", "receiver": "hack/receiver", "oidc": "hack/oidc", "rail": "examples/rail"} {
		if err := repository.Build(filepath.Join(bin, program), directory); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// Run is one `make run`.
type Run struct {
	Root    string
	Process *os.Process
	Ended   <-chan struct{}

	command *exec.Cmd
	output  string // the file with its output
}

// Start starts it in a directory of Build, with more variables in its environment. It ends with the test.
func Start(t testing.TB, root string, env ...string) *Run {
	t.Helper()
	output, err := os.CreateTemp(root, "output")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = output.Close() }()
	ended := make(chan struct{})
	r := &Run{Root: root, Ended: ended, command: exec.Command(filepath.Join(root, "bin", "devenv")), output: output.Name()}
	r.command.Dir = root
	r.command.Env = append(os.Environ(), env...)
	r.command.Stdout, r.command.Stderr = output, output
	if err := r.command.Start(); err != nil {
		t.Fatal(err)
	}
	r.Process = r.command.Process
	go func() {
		_ = r.command.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = r.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	return r
}

// ExitCode is known when it has ended.
func (r *Run) ExitCode() int { return r.command.ProcessState.ExitCode() }

// Output is what it has printed until now.
func (r *Run) Output(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile(r.output)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// WaitForEnv reads .dev/env as soon as it exists.
func (r *Run) WaitForEnv(t testing.TB) map[string]string {
	t.Helper()
	var content []byte
	await.Until(t, patience, ".dev/env exists", func() bool {
		select {
		case <-r.Ended:
			t.Fatalf("make run ended; it printed:\n%s", r.Output(t))
		default:
		}
		var err error
		content, err = os.ReadFile(filepath.Join(r.Root, ".dev", "env"))
		return err == nil
	})
	env := map[string]string{}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		env[name] = value
	}
	return env
}
