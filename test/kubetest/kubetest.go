// Package kubetest starts a real kube-apiserver with its etcd for tests, with this project's CRDs installed.
// There are no controllers, no kubelet and no scheduler: only the API, its storage, validation and access rules.
package kubetest

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// patience is how long each process may take to start or to stop: far more than it needs on a busy machine.
const patience = 90 * time.Second

// Start starts a control plane that belongs to t (a Ginkgo suite passes GinkgoTB() in BeforeSuite) and stops
// with it. Its Config is the administrator's; AddUser makes others. It fails t when it cannot be started. change edits the
// environment before that.
func Start(t testing.TB, change ...func(*envtest.Environment)) *envtest.Environment {
	t.Helper()
	environment, stop, err := New(change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return environment
}

// New starts a control plane that belongs to no test, for TestMain: the caller runs the returned stop function
// when the tests are over. Connections that are still open then, watches above all, make stop slow. change edits the
// environment before it starts.
func New(change ...func(*envtest.Environment)) (environment *envtest.Environment, stop func() error, err error) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		return nil, nil, errors.New("this test needs a kube-apiserver; run `make test`, or " +
			"export KUBEBUILDER_ASSETS=$(hack/controlplane/build.sh)")
	}
	// Whatever USE_EXISTING_CLUSTER says: no test may ever reach somebody's real cluster.
	ownCluster := false
	environment = &envtest.Environment{
		UseExistingCluster:       &ownCluster,
		CRDDirectoryPaths:        []string{repository.Path("config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: patience,
		ControlPlaneStopTimeout:  patience,
	}
	// 100,000 ApiKeys with their Secrets and events exceed etcd's default of 2 GB.
	etcd := &envtest.Etcd{}
	etcd.Configure().Set("quota-backend-bytes", "8589934592")
	environment.ControlPlane.Etcd = etcd
	for _, c := range change {
		c(environment)
	}
	if _, err := environment.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start the control plane: %w", err), environment.Stop())
	}
	return environment, environment.Stop, nil
}
