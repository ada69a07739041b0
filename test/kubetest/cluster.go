package kubetest

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
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/leaks"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// The namespaces of config/.
const (
	SystemNamespace      = "merchant-operator-system"
	CredentialsNamespace = "merchant-operator-credentials"
)

// Cluster is a control plane with clients of its administrator, and accounts to sign in as.
type Cluster struct {
	Environment *envtest.Environment
	Client      client.Client // knows the project's kinds
	Dir         string        // for files, removed at the end; it has the kubeconfigs

	signingIn sync.Mutex // its certificate authority is not for several at a time
}

// NewCluster starts a Cluster that belongs to no test, for TestMain: the caller runs the returned stop function when the
// tests are over, also if there was an error. change edits the environment before it starts.
func NewCluster(change ...func(*envtest.Environment)) (c *Cluster, stop func() error, err error) {
	environment, stopEnvironment, err := New(change...)
	if err != nil {
		return nil, func() error { return nil }, err
	}
	c = &Cluster{Environment: environment}
	stop = func() error { return errors.Join(stopEnvironment(), os.RemoveAll(c.Dir)) }
	if c.Dir, err = os.MkdirTemp("", "cluster"); err != nil {
		return c, stop, err
	}
	if err := os.WriteFile(c.administrator(), environment.KubeConfig, 0o600); err != nil {
		return c, stop, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return c, stop, err
	}
	c.Client, err = client.New(environment.Config, client.Options{Scheme: scheme})
	return c, stop, err
}

// Main is the TestMain of a package with one Cluster: prepare gets it before the tests run. It also looks for goroutines that
// the tests have left behind.
func Main(m *testing.M, prepare func(*Cluster) error) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	cluster, stop, err := NewCluster()
	if err == nil {
		err = prepare(cluster)
	}
	if err != nil {
		log.Fatal(errors.Join(err, stop()))
	}
	leaks.Run(m, stop)
}

// Namespace creates a namespace for a test, whose name begins with the prefix, and returns the name.
func Namespace(t testing.TB, config *rest.Config, prefix string) string {
	t.Helper()
	namespace, err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

func (c *Cluster) administrator() string { return filepath.Join(c.Dir, "admin.kubeconfig") }

// Kubectl runs kubectl as the administrator, with this text as its input, and returns what it printed.
func (c *Cluster) Kubectl(input string, arguments ...string) (string, error) {
	command := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.administrator())
	command.Stdin = strings.NewReader(input)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("kubectl %v: %w\n%s%s", arguments, err, &out, &problems)
	}
	return out.String(), nil
}

// InstallRBAC applies the namespaces, service accounts and roles of config/rbac and config/console/rbac, as a platform team would.
func (c *Cluster) InstallRBAC() error {
	for _, directory := range []string{"rbac", "console/rbac"} {
		if _, err := c.Kubectl("", "apply", "--server-side", "-k", repository.Path("config", directory)); err != nil {
			return err
		}
	}
	return nil
}

// Account signs in as a service account of SystemNamespace: it has the rights that were granted to it, and no others.
func (c *Cluster) Account(name string) (*envtest.AuthenticatedUser, error) {
	return c.signIn(serviceAccount(name))
}

func serviceAccount(name string) envtest.User {
	return envtest.User{
		Name:   "system:serviceaccount:" + SystemNamespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + SystemNamespace, "system:authenticated"},
	}
}

func (c *Cluster) signIn(user envtest.User) (*envtest.AuthenticatedUser, error) {
	c.signingIn.Lock()
	defer c.signingIn.Unlock()
	return c.Environment.AddUser(user, nil)
}

// Kubeconfig writes a file that signs in as a service account of SystemNamespace. Each call writes another one, because tests that run at the
// same time read them.
func (c *Cluster) Kubeconfig(account string) (path string, err error) {
	return c.UserKubeconfig(serviceAccount(account))
}

// UserKubeconfig is Kubeconfig for anybody.
func (c *Cluster) UserKubeconfig(user envtest.User) (path string, err error) {
	signedIn, err := c.signIn(user)
	if err != nil {
		return "", err
	}
	content, err := signedIn.KubeConfig()
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(c.Dir, "*.kubeconfig")
	if err != nil {
		return "", err
	}
	_, err = file.Write(content)
	return file.Name(), errors.Join(err, file.Close())
}
