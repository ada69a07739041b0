// Package fluxtest runs Flux beside a cluster of kubetest: its real kustomize-controller, and in place of source-controller a
// Source, which serves what was pushed to a Git repository.
package fluxtest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/freeport"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

const (
	// Namespace has the Kustomizations and the GitRepository.
	Namespace = "flux-system"
	// User is who the kustomize-controller signs in as.
	User = "system:serviceaccount:" + Namespace + ":kustomize-controller"
	// patience bounds every wait: far more than anything needs on a busy machine.
	patience = 2 * time.Minute
)

var kustomizations = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}

// Flux is a running kustomize-controller with the Source of what it applies.
type Flux struct {
	*Source

	Logs logtest.Buffer

	kube   client.Client
	syncs  int
	stop   func() error
	health string // URL
}

// InstallCRDs has an environment that is not started yet install the CustomResourceDefinitions of Flux.
func InstallCRDs(environment *envtest.Environment) {
	environment.CRDDirectoryPaths = append(environment.CRDDirectoryPaths, filepath.Join(os.Getenv("FLUX_ASSETS"), "crds"))
}

// Start returns a Flux that is ready. The caller stops it, also if there was an error.
func Start(cluster *kubetest.Cluster) (*Flux, error) {
	assets := os.Getenv("FLUX_ASSETS")
	if assets == "" {
		return &Flux{}, errors.New("this test needs Flux; run `make gitops`, or export FLUX_ASSETS=$(hack/flux/build.sh)")
	}
	f := &Flux{kube: cluster.Client}
	kubeconfig, err := f.signIn(cluster)
	if err != nil {
		return f, err
	}
	if f.Source, err = startSource(cluster); err != nil {
		return f, err
	}
	port, err := freeport.Choose()
	if err != nil {
		return f, err
	}
	f.health = fmt.Sprintf("http://127.0.0.1:%d/readyz", port)
	controller := exec.Command(filepath.Join(assets, "kustomize-controller"),
		"--metrics-addr=0", fmt.Sprintf("--health-addr=127.0.0.1:%d", port), "--enable-leader-election=false",
		"--requeue-dependency=5s", "--log-level=info")
	controller.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "RUNTIME_NAMESPACE="+Namespace, "TMPDIR="+cluster.Dir)
	controller.Stdout, controller.Stderr = &f.Logs, &f.Logs
	if err := controller.Start(); err != nil {
		return f, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = controller.Wait() // its log has the reason of an end that nobody asked for
	}()
	f.stop = func() error {
		_ = controller.Process.Signal(syscall.SIGTERM) // fails if it has ended
		select {
		case <-ended:
			return nil
		case <-time.After(patience):
			return errors.Join(errors.New("kustomize-controller did not stop"), controller.Process.Kill())
		}
	}
	err = f.awaitReady(ended)
	return f, err
}

// signIn writes the kubeconfig of an account with the rights that Flux's own manifests give it: all.
func (f *Flux) signIn(cluster *kubetest.Cluster) (kubeconfig string, err error) {
	if _, err := cluster.Kubectl("", "create", "namespace", Namespace); err != nil {
		return "", err
	}
	user, err := cluster.Environment.AddUser(envtest.User{Name: User, Groups: []string{"system:serviceaccounts", "system:authenticated"}}, nil)
	if err != nil {
		return "", err
	}
	content, err := user.KubeConfig()
	if err != nil {
		return "", err
	}
	kubeconfig = filepath.Join(cluster.Dir, "flux.kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		return "", err
	}
	_, err = cluster.Kubectl("", "create", "clusterrolebinding", "cluster-reconciler", "--clusterrole=cluster-admin", "--user="+User)
	return kubeconfig, err
}

func (f *Flux) awaitReady(ended <-chan struct{}) error {
	deadline := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if answer, err := http.Get(f.health); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ended:
			return fmt.Errorf("kustomize-controller ended\n%s", &f.Logs)
		case <-deadline:
			return fmt.Errorf("kustomize-controller is not ready\n%s", &f.Logs)
		case <-tick.C:
		}
	}
}

// Stop ends what was started.
func (f *Flux) Stop() error {
	var failures []error
	if f.stop != nil {
		failures = append(failures, f.stop())
	}
	if f.Source != nil {
		f.Source.stop()
	}
	return errors.Join(failures...)
}

// Result is how a Kustomization ended a sync.
type Result struct {
	Ready           bool
	Reason, Message string // of the condition Ready
}

// Synced waits until a Kustomization has tried what was pushed last.
func (f *Flux) Synced(t testing.TB, name string) Result {
	t.Helper()
	head, err := f.head()
	if err != nil {
		t.Fatal(err)
	}
	return f.await(t, name, func(k *unstructured.Unstructured) bool {
		attempted, _, _ := unstructured.NestedString(k.Object, "status", "lastAttemptedRevision")
		return attempted == head
	})
}

// Sync has a Kustomization try the same revision again, as `flux reconcile` does, and waits for the end of that.
func (f *Flux) Sync(t testing.TB, name string) Result {
	t.Helper()
	f.syncs++
	asked := fmt.Sprintf("%s %d", t.Name(), f.syncs)
	f.Change(t, name, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, asked))
	return f.await(t, name, func(k *unstructured.Unstructured) bool {
		handled, _, _ := unstructured.NestedString(k.Object, "status", "lastHandledReconcileAt")
		return handled == asked
	})
}

// Change merges a JSON patch into a Kustomization.
func (f *Flux) Change(t testing.TB, name, patch string) {
	t.Helper()
	k := newKustomization(name)
	if err := f.kube.Patch(t.Context(), k, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

func (f *Flux) get(t testing.TB, name string) *unstructured.Unstructured {
	t.Helper()
	k := newKustomization(name)
	if err := f.kube.Get(t.Context(), client.ObjectKeyFromObject(k), k); err != nil {
		t.Fatal(err)
	}
	return k
}

func (f *Flux) await(t testing.TB, name string, over func(*unstructured.Unstructured) bool) (result Result) {
	t.Helper()
	await.Seeing(t, patience, "Kustomization "+name+" has synced", func() (string, bool) {
		k := f.get(t, name)
		ready := readyCondition(k)
		result = Result{Ready: ready["status"] == string(metav1.ConditionTrue), Reason: ready["reason"], Message: ready["message"]}
		return fmt.Sprintf("%v\n%s", ready, tail(f.Logs.String())),
			over(k) && ready["status"] != "" && ready["status"] != string(metav1.ConditionUnknown)
	})
	return result
}

// tail is the end of a log, enough to see what came last.
func tail(log string) string {
	lines := strings.Split(log, "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

func newKustomization(name string) *unstructured.Unstructured {
	k := &unstructured.Unstructured{}
	k.SetGroupVersionKind(kustomizations)
	k.SetNamespace(Namespace)
	k.SetName(name)
	return k
}

// readyCondition returns the fields of the condition; empty: there is none.
func readyCondition(k *unstructured.Unstructured) map[string]string {
	fields := map[string]string{}
	conditions, _, _ := unstructured.NestedSlice(k.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == "Ready" {
			for name, value := range condition {
				fields[name] = fmt.Sprint(value)
			}
		}
	}
	return fields
}
