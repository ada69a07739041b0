package manifests

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// The one control plane of this package's tests. Every test applies what it needs, which does no harm twice.
var (
	clientset  *kubernetes.Clientset
	kubeconfig string
)

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	if err := run(m); err != nil {
		log.Fatal(err)
	}
}

// run leaves the tests' own result to the testing package, which reports it when TestMain returns.
func run(m *testing.M) (err error) {
	environment, stop, err := kubetest.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	clientset, err = kubernetes.NewForConfig(environment.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	directory, err := os.MkdirTemp("", "manifests")
	if err != nil {
		return fmt.Errorf("make a directory for the kubeconfig: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	kubeconfig = filepath.Join(directory, "kubeconfig")
	if err := os.WriteFile(kubeconfig, environment.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	m.Run()
	return nil
}

// config returns a path below config/.
func config(elements ...string) string {
	return filepath.Join(append([]string{"..", "..", "config"}, elements...)...)
}

// apply runs `kubectl apply -k config/<directory>` and returns what it printed.
func apply(t *testing.T, directory string, arguments ...string) string {
	t.Helper()
	return kubectl(t, append([]string{"apply", "-k", config(directory)}, arguments...)...)
}

func kubectl(t *testing.T, arguments ...string) string {
	t.Helper()
	program := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		t.Fatalf("kubectl %v: %v\n%s%s", arguments, err, &out, &problems)
	}
	return out.String()
}
