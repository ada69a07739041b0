package chart

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

const (
	release     = "merchant-operator"
	system      = "merchant-operator-system"
	credentials = "merchant-operator-credentials"
)

// namespaces are there before the chart is, as docs/install.md makes them; those of credentials and shops too, for
// a dry run of what is in them.
const namespaces = `
apiVersion: v1
kind: Namespace
metadata:
  name: merchant-operator-system
  labels: {pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: v1
kind: Namespace
metadata: {name: merchant-operator-credentials}
---
apiVersion: v1
kind: Namespace
metadata: {name: shops}
---
apiVersion: v1
kind: Namespace
metadata: {name: more-shops}
`

// The one control plane of this package's tests.
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
	if clientset, err = kubernetes.NewForConfig(environment.Config); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	directory, err := os.MkdirTemp("", "chart")
	if err != nil {
		return fmt.Errorf("make a directory for the kubeconfig: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	kubeconfig = filepath.Join(directory, "kubeconfig")
	if err := os.WriteFile(kubeconfig, environment.KubeConfig, 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	routes, err := httpRouteCRD()
	if err != nil {
		return err
	}
	if _, err := runKubectl(namespaces, "apply", "-f", "-", "-f", routes); err != nil {
		return err
	}
	m.Run()
	return nil
}

// httpRouteCRD is the Gateway API's own definition, from the module that has its Go types.
func httpRouteCRD() (string, error) {
	directory, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		return "", fmt.Errorf("find the module of the Gateway API: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(directory)), "config", "crd", "standard", "gateway.networking.k8s.io_httproutes.yaml"), nil
}

func kubectl(t *testing.T, input string, arguments ...string) string {
	t.Helper()
	out, err := runKubectl(input, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func runKubectl(input string, arguments ...string) (string, error) {
	command := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	command.Stdin = strings.NewReader(input)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("kubectl %v: %w\n%s%s", arguments, err, &out, &problems)
	}
	return out.String(), nil
}

// inRepository returns a path below the repository's root.
func inRepository(elements ...string) string {
	return filepath.Join(append([]string{"..", ".."}, elements...)...)
}
