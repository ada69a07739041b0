//go:build gitops

package gitops

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/fluxtest"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// updatePage puts the tables where they are compared.
var updatePage = flag.Bool("page", false, "put the tables of this run into testdata/changes.txt and docs/gitops.md")

// pipeline is a cluster with Flux. The roles start when Flux has applied their Deployments.
type pipeline struct {
	*fixture.Installation

	flux    *fluxtest.Flux
	audit   *kubetest.AuditLog
	api     fixture.Replica
	workDir string // has the clone of the repository of manifests
}

var shared *pipeline

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	if err := runTests(m); err != nil {
		log.Fatal(err)
	}
}

// runTests leaves the tests' own result to the testing package, which reports it when TestMain returns.
func runTests(m *testing.M) (err error) {
	shared, err = start()
	defer func() { err = errors.Join(err, shared.Close()) }()
	if err != nil {
		return err
	}
	m.Run()
	return nil
}

// start starts an empty cluster with Flux.
func start() (p *pipeline, err error) {
	p = &pipeline{Installation: &fixture.Installation{}}
	if p.workDir, err = os.MkdirTemp("", "gitops"); err != nil {
		return p, err
	}
	p.OnClose(func() error { return os.RemoveAll(p.workDir) })
	if p.audit, err = kubetest.NewAuditLog(p.workDir, kubetest.AuditWrites); err != nil {
		return p, err
	}
	cluster, stop, err := kubetest.NewCluster(func(environment *envtest.Environment) {
		environment.CRDDirectoryPaths = nil // ours come from Git
		fluxtest.InstallCRDs(environment)
		p.audit.Record(environment)
	})
	p.Cluster = cluster
	p.OnClose(stop)
	if err != nil {
		return p, err
	}
	redis, closeRedis, err := redistest.New()
	if err != nil {
		return p, err
	}
	p.Redis = redis
	p.OnClose(func() error { closeRedis(); return nil })
	p.flux, err = fluxtest.Start(p.Cluster)
	p.OnClose(p.flux.Stop)
	if err != nil {
		return p, err
	}
	return p, p.writeInstaller()
}

// writeInstaller writes install.yaml as `make build-installer` does.
func (p *pipeline) writeInstaller() error {
	manifests, err := p.Kubectl("", "kustomize", repository.Path("config", "default"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.workDir, "install.yaml"), []byte(manifests), 0o600)
}

// runDeployments does what a Deployment controller and a kubelet would, which this cluster has not: it starts the roles when Flux has
// applied their Deployments, and says so in the status of these.
func (p *pipeline) runDeployments(ctx context.Context) error {
	names := []string{fixture.OperatorAccount, fixture.APIServerAccount, fixture.DispatcherAccount}
	deployments := map[string]*appsv1.Deployment{}
	if err := p.Wait("Flux has applied the Deployments", func() (bool, error) {
		for _, name := range names {
			var deployment appsv1.Deployment
			err := p.Client.Get(ctx, client.ObjectKey{Namespace: kubetest.SystemNamespace, Name: name}, &deployment)
			if err != nil {
				return false, client.IgnoreNotFound(err)
			}
			deployments[name] = &deployment
		}
		return true, nil
	}); err != nil {
		return err
	}
	if err := p.startRoles(); err != nil { //nolint:contextcheck // roles live longer than the caller's context
		return err
	}
	for _, deployment := range deployments {
		replicas := *deployment.Spec.Replicas
		deployment.Status = appsv1.DeploymentStatus{
			ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", LastUpdateTime: metav1.Now()},
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", LastUpdateTime: metav1.Now()},
			},
		}
		if err := p.Client.Status().Update(ctx, deployment); err != nil {
			return fmt.Errorf("status of Deployment %s: %w", deployment.Name, err)
		}
	}
	return nil
}

func (p *pipeline) startRoles() (err error) {
	if err := p.startOperator(); err != nil {
		return err
	}
	if p.api, err = p.StartAPIServer("apiserver", func(*apiserver.Options) {}); err != nil {
		return err
	}
	_, err = p.StartDispatcher("dispatcher", func(o *dispatcher.Options) { o.PublishUsesInterval = noLastUses })
	return err
}

func (p *pipeline) startOperator() error {
	_, err := p.StartOperator("operator", func(o *controllers.Options) { o.LeaderElect, o.LastUseInterval = false, noLastUses })
	return err
}

// noLastUses has none published while the suite runs: it uses keys all the time, and looks for writes that a sync causes.
const noLastUses = time.Hour
