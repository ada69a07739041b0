// Package manifests applies config/ to a real kube-apiserver and asks it what the result means: that it is
// accepted, that pods keep the security standard of their namespace, that Services reach them, and what
// each service account may do. It has only tests.
package manifests

import (
	"testing"

	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

const (
	system      = kubetest.SystemNamespace
	credentials = kubetest.CredentialsNamespace
	tenant      = "shops"
)

// cluster is the one control plane of this package's tests, and installed what of config/ they have applied to it.
var (
	cluster   *kubetest.Cluster
	installed = map[string]bool{}
)

func TestMain(m *testing.M) {
	kubetest.Main(m, func(c *kubetest.Cluster) error { cluster = c; return nil })
}

// install applies a directory of config/, unless a test has done so before.
func install(t *testing.T, directory string) {
	t.Helper()
	if !installed[directory] {
		apply(t, directory)
		installed[directory] = true
	}
}

// apply runs `kubectl apply -k config/<directory>` and returns what it printed.
func apply(t *testing.T, directory string, arguments ...string) string {
	t.Helper()
	return kubectl(t, "", append([]string{"apply", "-k", repository.Path("config", directory)}, arguments...)...)
}

func kubectl(t *testing.T, input string, arguments ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(input, arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
