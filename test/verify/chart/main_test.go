// Package chart renders charts/merchant-operator as Helm does, and asks a real kube-apiserver, the program itself and
// a real redis-server what the result means: that every toggle is accepted, that pods keep the security standard of their
// namespace, what each service account may do, and that wrong values are refused with a sentence that helps. It has
// only tests.
package chart

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

const (
	release     = "merchant-operator"
	system      = kubetest.SystemNamespace
	credentials = kubetest.CredentialsNamespace
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

// cluster is the one control plane of this package's tests.
var cluster *kubetest.Cluster

func TestMain(m *testing.M) {
	kubetest.Main(m, func(c *kubetest.Cluster) error {
		cluster = c
		routes, err := httpRouteCRD()
		if err != nil {
			return err
		}
		_, err = c.Kubectl(namespaces, "apply", "-f", "-", "-f", routes)
		return err
	})
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
	out, err := cluster.Kubectl(input, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
