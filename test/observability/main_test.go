// Package observability checks what the roles show of themselves, after some traffic: metrics, profiles, traces and logs, who may
// read them, and that docs/reference/metrics.md lists them. test/verify/monitoring checks alerts and dashboard against that page.
package observability

import (
	"context"
	"errors"
	"flag"
	"log"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/console"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/hack/receiver/inbox"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/mailtest"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// The roles, as they are called in docs/reference/metrics.md.
const (
	operatorRole   = "operator"
	apiserverRole  = "apiserver"
	dispatcherRole = "dispatcher"
	consoleRole    = "console"
)

// installation is one of each role, with ops ports that are for those who may read them.
type installation struct {
	*fixture.Installation

	api      fixture.Replica
	console  string                      // URL of its pages
	ops      map[string]string           // base URL of each role's ops port
	token    string                      // of who may read the metrics
	spans    *tracetest.InMemoryExporter // of all roles but the operator
	receiver *inbox.Recorder             // gets the webhooks
	provider *oidctest.Provider          // where people sign in
	secrets  []string                    // must be nowhere in what is shown
}

// person is who uses the console.
var person = oidctest.User{Username: "penelope", Password: "her password", Email: "penelope@shop.example", Name: "Penelope Person"}

// shared is the one installation of this package's tests; there has been traffic before the first of them.
var shared *installation

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	if err := run(m); err != nil {
		log.Fatal(err)
	}
}

// run leaves the tests' own result to the testing package, which reports it when TestMain returns.
func run(m *testing.M) (err error) {
	shared = &installation{ops: map[string]string{}, spans: tracetest.NewInMemoryExporter()}
	shared.Installation, err = fixture.Install()
	defer func() { err = errors.Join(err, shared.Close()) }()
	for _, step := range []func() error{shared.admitPrometheus, shared.start, shared.traffic} {
		if err == nil {
			err = step()
		}
	}
	if err == nil {
		m.Run()
	}
	return err
}

func (i *installation) start() (err error) {
	i.ops[operatorRole], err = i.StartOperator(operatorRole, func(o *controllers.Options) {
		o.Ops.Secure, o.Ops.Profiles = true, true
	})
	if err != nil {
		return err
	}
	mails, err := mailtest.Start(mailtest.Options{})
	if err != nil {
		return err
	}
	i.OnClose(mails.Close)
	i.api, err = i.StartAPIServer(apiserverRole, func(o *apiserver.Options) {
		o.Receipts = true
		o.Ops.Secure, o.Ops.Profiles = true, true
		o.Spans = sdktrace.NewSimpleSpanProcessor(i.spans)
		o.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 1, Burst: 5}
	})
	if err != nil {
		return err
	}
	i.ops[apiserverRole] = i.api.Ops
	i.ops[dispatcherRole], err = i.StartDispatcher(dispatcherRole, func(o *dispatcher.Options) {
		o.MailServer = dispatcher.MailServer{URL: "smtp://" + mails.Address(), From: "receipts@pay.example"}
		o.Ops.Secure, o.Ops.Profiles = true, true
		o.Spans = sdktrace.NewSimpleSpanProcessor(i.spans)
	})
	if err != nil {
		return err
	}
	provider, stop, err := oidctest.New(i.Dir, person)
	i.provider = provider
	i.OnClose(stop)
	if err != nil {
		return err
	}
	i.console, i.ops[consoleRole], err = i.StartConsole(consoleRole, i.api.Internal, provider.Issuer, func(o *console.Options) {
		o.Ops.Secure, o.Ops.Profiles = true, true
		o.Spans = sdktrace.NewSimpleSpanProcessor(i.spans)
	})
	return err
}

// admitPrometheus makes the account that config/prometheus/rbac.yaml binds, and keeps a token of it.
func (i *installation) admitPrometheus() error {
	if _, err := i.Kubectl("", "apply", "--server-side", "-f", repository.Path("config", "prometheus", "rbac.yaml")); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "prometheus-k8s"}}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}}, account} {
		if err := i.Client.Create(context.Background(), object); err != nil {
			return err
		}
	}
	request := &authenticationv1.TokenRequest{}
	err := i.Client.SubResource("token").Create(context.Background(), account, request)
	i.token = request.Status.Token
	i.secrets = append(i.secrets, i.token)
	return err
}

// get asks the ops port of a role; an empty token is none.
func (i *installation) get(role, path, token string) (status int, text string, err error) {
	answer, err := fixture.Call(fixture.Insecure, i.ops[role], "GET", path, token, "")
	return answer.Status, string(answer.Raw), err
}
