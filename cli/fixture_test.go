package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/leaks"
)

var (
	installation *fixture.Installation
	replica      fixture.Replica
	audited      *kubetest.AuditLog
	auditDir     string
	// admin is a kubeconfig with all rights.
	admin    string
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
)

func TestMain(m *testing.M) {
	if args, ok := Args(os.Args); ok { // kubectl runs it as the plugin
		ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt)                                                 // until the process ends
		os.Exit(Execute(ctx, "v1.2.3", genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, args)) //nolint:forbidigo // it is main then
	}
	flag.Parse()
	if err := recordRequests(); err != nil {
		log.Fatal(err)
	}
	var err error
	end := func() error { return errors.Join(installation.Close(), os.RemoveAll(auditDir)) }
	if installation, err = fixture.Install(audited.Record); err == nil {
		err = start()
	}
	if err != nil {
		log.Fatal(errors.Join(err, end()))
	}
	leaks.Run(m, end)
}

// recordRequests makes the log of the requests to the Kubernetes API.
func recordRequests() (err error) {
	if auditDir, err = os.MkdirTemp("", "audit"); err != nil {
		return err
	}
	audited, err = kubetest.NewAuditLog(auditDir, kubetest.AuditRequests)
	return err
}

func start() (err error) {
	admin = filepath.Join(installation.Dir, "admin.kubeconfig")
	if _, err = installation.StartOperator("operator", func(*controllers.Options) {}); err != nil {
		return err
	}
	// The API takes the address of a caller from X-Forwarded-For.
	if replica, err = installation.StartAPIServer("apiserver", func(o *apiserver.Options) { o.TrustedProxies = loopback }); err != nil {
		return err
	}
	if _, err = installation.StartDispatcher("dispatcher", func(*dispatcher.Options) {}); err != nil {
		return err
	}
	// Here, so that tests that need them can run at the same time.
	return errors.Join(os.Setenv("API_URL", replica.Public), os.Setenv("REDIS_URL", installation.Redis.URL()))
}

// execute runs a command line of the plugin.
func execute(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	return Execute(ctx, "v1.2.3", streams, args)
}

// result is what a command did.
type result struct {
	out, problems string
	code          int
}

// run runs a command line of the administrator in the tenant's namespace.
func run(t *testing.T, namespace, commandLine string) result {
	t.Helper()
	return runAs(t, admin, namespace, "", strings.Fields(commandLine)...)
}

func runAs(t *testing.T, kubeconfig, namespace, input string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Patience)
	defer cancel()
	var out, problems bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(input), Out: &out, ErrOut: &problems}
	code := execute(ctx, streams, append(args, "--kubeconfig="+kubeconfig, "-n="+namespace))
	return result{out.String(), problems.String(), code}
}

// want fails the test unless the command ended with the code, and its output has these words.
func (r result) want(t *testing.T, code int, words ...string) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.problems)
	}
	for _, word := range words {
		if !strings.Contains(r.out+r.problems, word) {
			t.Errorf("no %q in\nstdout: %s\nstderr: %s", word, r.out, r.problems)
		}
	}
	return r
}

// wantNo fails the test if the command has printed the word.
func (r result) wantNo(t *testing.T, word string) {
	t.Helper()
	if strings.Contains(r.out+r.problems, word) {
		t.Errorf("%q in\nstdout: %s\nstderr: %s", word, r.out, r.problems)
	}
}

// user is a person without any right, and their kubeconfig.
func user(t *testing.T, name string) (kubeconfig string) {
	t.Helper()
	kubeconfig, err := installation.UserKubeconfig(envtest.User{Name: name, Groups: []string{"system:authenticated"}})
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// grant gives the user rules in a namespace.
func grant(t *testing.T, name, namespace string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, GenerateName: "granted-"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: rules}
	if err := installation.Client.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	if err := installation.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
}

// me asks the real API who the key is of, from an address.
func me(t *testing.T, key, address string) int {
	t.Helper()
	answer, err := fixture.Call(fixture.Insecure, replica.Public, "GET", fixture.Me, key, "", "X-Forwarded-For", address)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status
}
