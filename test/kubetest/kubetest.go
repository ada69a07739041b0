// Package kubetest starts a real kube-apiserver with its etcd for tests, with this project's CRDs installed.
// There are no controllers, no kubelet and no scheduler: only the API, its storage, validation and access rules.
package kubetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/test/repository"
)

// patience is how long each process may take to start or to stop: far more than it needs on a busy machine.
const patience = 90 * time.Second

// Start starts a control plane that belongs to t (a Ginkgo suite passes GinkgoTB() in BeforeSuite) and stops
// with it. Its Config is the administrator's; AddUser makes others. It fails t when it cannot be started.
func Start(t testing.TB) *envtest.Environment {
	t.Helper()
	environment, stop, err := New()
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

// StartAudited is Start with an audit log: each request to the API server is a line of JSON in the file, a deletion with its options.
func StartAudited(t testing.TB) (environment *envtest.Environment, auditLog string) {
	t.Helper()
	directory := t.TempDir()
	auditLog = filepath.Join(directory, "audit.log")
	policy := filepath.Join(directory, "policy.yaml")
	const rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Request, verbs: [delete]}, {level: Metadata}]\n"
	if err := os.WriteFile(policy, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	environment, stop, err := start(func(server *envtest.APIServer) {
		server.Configure().Set("audit-log-path", auditLog).Set("audit-policy-file", policy).Set("audit-log-mode", "blocking")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return environment, auditLog
}

// New starts a control plane that belongs to no test, for TestMain: the caller runs the returned stop function
// when the tests are over. Connections that are still open then, watches above all, make stop slow.
func New() (environment *envtest.Environment, stop func() error, err error) {
	return start(func(*envtest.APIServer) {})
}

// start starts a control plane whose API server is changed before.
func start(change func(*envtest.APIServer)) (environment *envtest.Environment, stop func() error, err error) {
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
	change(environment.ControlPlane.GetAPIServer())
	if _, err := environment.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start the control plane: %w", err), environment.Stop())
	}
	return environment, environment.Stop, nil
}
