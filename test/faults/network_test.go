//go:build faults

package faults

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/test/dnstest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/proxytest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// networkFaults are between the dispatcher and merchants' endpoints, and between roles and the Kubernetes API.
func networkFaults() []fault {
	return []fault{
		{"P10", "a tenant owns the namespace dev and has a Service for each merchant's domain", "events go to the merchant, also while its own name is gone", tryNamesOfServices},
		{"P10", "a layer-4 balancer forgets the connections to ten merchants", "their events arrive over other ones", tryForgottenConnection},
		{"P2", "a layer-4 balancer forgets the replicas' connections to the Kubernetes API", "a key that is disabled then is refused after " + disabledWithin.String(), tryForgottenWatches},
		{"P2", "a layer-4 balancer forgets the operator's connections to the Kubernetes API", "a key that is disabled then is refused after " + disabledWithin.String(), tryForgottenOperator},
	}
}

// tryNamesOfServices has a cluster's name server answer acme.dev.svc.cluster.local, which a pod asks first by its search list.
func tryNamesOfServices(t *testing.T) (int, string) {
	t.Helper()
	const events = 20
	names := dnstest.StartForPods(t)
	hooks := newReceiver(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(hooks.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	var stolen atomic.Int64
	listener, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Fatal(err)
	}
	service := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		stolen.Add(1)
	})}}
	service.Start()
	t.Cleanup(service.Close)
	names.Set("acme.dev.svc.cluster.local", "127.0.0.2")

	s := deploy(t, 0, 0)
	s.runDispatcher(&process{name: "dispatcher-1", names: names})
	services := storetest.New(t, s.url)
	coffee := s.Merchant("coffee", webhook("http://acme.dev:"+port+"/hooks"))
	ids := s.events(services, coffee, events)
	eventually(t, "an attempt fails while the name is gone", func() bool {
		return stolen.Load() > 0 || attemptsEnded(t, s.dispatchers[0].ops, "dns") > 0
	})
	names.Set("acme.dev", "127.0.0.1")
	for _, id := range ids {
		eventually(t, "the event of "+id+" arrives", func() bool { return stolen.Load() > 0 || hooks.received(id) })
	}
	if stolen.Load() > 0 {
		t.Errorf("%d events went to the Service", stolen.Load())
	}
	return events, fmt.Sprintf("%d events arrived, %d went to the Service", len(ids), stolen.Load())
}

// attemptsEnded is how many attempts of the dispatcher at an ops port ended with a reason.
func attemptsEnded(t *testing.T, ops, reason string) (count float64) {
	t.Helper()
	for _, metric := range readMetrics(t, ops)["merchant_operator_webhook_attempts_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetValue() == reason {
				count += metric.GetCounter().GetValue()
			}
		}
	}
	return count
}

// tryForgottenConnection has a balancer keep the dispatcher's connections open and pass nothing on. The receiver is healthy.
func tryForgottenConnection(t *testing.T) (int, string) {
	t.Helper()
	const merchants = 10
	hooks := newReceiver(t)
	secure := httptest.NewUnstartedServer(hooks)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	authority := filepath.Join(t.TempDir(), "ca.crt")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	if err := os.WriteFile(authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	balancer := proxytest.NewBalancer(t, secure.Listener.Addr().String())

	s := deploy(t, 0, 0)
	s.runDispatcher(&process{name: "dispatcher-1", env: []string{"SSL_CERT_FILE=" + authority}})
	services := storetest.New(t, s.url)
	var all []*v1alpha1.Merchant
	for n := range merchants {
		merchant := s.Merchant(fmt.Sprintf("shop-%d", n), webhook("https://"+balancer.Address+"/hooks"))
		s.arrive(services, merchant, hooks, 1)
		all = append(all, merchant)
	}
	for _, id := range s.events(services, all[0], 300) { // at once, so over several connections
		eventually(t, "the event of "+id+" arrives", func() bool { return hooks.received(id) })
	}
	before := balancer.Accepted()
	balancer.Forget()
	forgotten := time.Now()
	ids := s.events(services, all[0], 1) // it takes one of the connections; its second attempt must not take another of them
	eventually(t, "the event of "+ids[0]+" arrives", func() bool { return hooks.received(ids[0]) })
	took := time.Since(forgotten)
	if most := delivery.Timeout + 15*time.Second; took > most {
		t.Errorf("the event arrived after %s, want at most %s", took, most)
	}
	for _, merchant := range all[1:] {
		ids = append(ids, s.events(services, merchant, 1)...)
	}
	for _, id := range ids {
		eventually(t, "the event of "+id+" arrives", func() bool { return hooks.received(id) })
	}
	return len(ids), fmt.Sprintf("%d connections before, %d afterwards; the first event arrived after %s, all %d events arrived",
		before, balancer.Accepted()-before, took.Round(100*time.Millisecond), len(ids))
}

// tryForgottenWatches has a balancer pass nothing on over the connections on which two replicas watch.
func tryForgottenWatches(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	var balancers []*proxytest.Balancer
	for _, r := range s.replicas {
		balancers = append(balancers, startBehindBalancer(t, r.process, fixture.APIServerAccount))
	}
	return s.disableForgotten(balancers...)
}

// tryForgottenOperator has a balancer pass nothing on over the connections of an operator that is the elected leader.
func tryForgottenOperator(t *testing.T) (int, string) {
	t.Helper()
	balancer := startBehindBalancer(t, electOperator(t), fixture.OperatorAccount)
	return deploy(t, 2, 0).disableForgotten(balancer)
}

// electOperator starts the operator again, until the end of the test, as one that elects a leader.
func electOperator(t *testing.T) *process {
	t.Helper()
	former := shared.operator.args
	t.Cleanup(func() {
		shared.operator.kill()
		shared.operator.args = former
		shared.operator.restart(t)
	})
	shared.operator.kill()
	shared.operator.args = slices.DeleteFunc(slices.Clone(former), func(arg string) bool { return arg == "--leader-elect=false" })
	shared.operator.args = append(shared.operator.args, "--leader-identity", t.Name()) // as the UID of a pod
	shared.operator.restart(t)
	return shared.operator
}

// startBehindBalancer starts a role again whose only way to the Kubernetes API is the Balancer.
func startBehindBalancer(t *testing.T, role *process, account string) *proxytest.Balancer {
	t.Helper()
	user, err := shared.Account(account)
	if err != nil {
		t.Fatal(err)
	}
	content, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	host := strings.Trim(strings.TrimPrefix(user.Config().Host, "https://"), "/")
	balancer := proxytest.NewBalancer(t, host)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, bytes.ReplaceAll(content, []byte(host), []byte(balancer.Address)), 0o600); err != nil {
		t.Fatal(err)
	}
	role.kill()
	role.args = slices.Clone(role.args)
	role.args[slices.Index(role.args, "--kubeconfig")+1] = kubeconfig
	role.restart(t)
	return balancer
}

// disableForgotten disables a key after the balancers have forgotten all connections.
func (s *deployment) disableForgotten(balancers ...*proxytest.Balancer) (int, string) {
	s.t.Helper()
	s.Merchant("coffee")
	key := s.apiKey("till", "coffee")
	for _, balancer := range balancers {
		balancer.Forget()
	}
	began := time.Now()
	edit(s, s.Namespace, "till", &v1alpha1.ApiKey{}, func(k *v1alpha1.ApiKey) { k.Spec.State = v1alpha1.ApiKeyDisabled })
	s.awaitRefused(key)
	took := time.Since(began)
	if took > disabledWithin {
		s.t.Errorf("a replica accepted the key for %s", took)
	}
	return 1, fmt.Sprintf("refused by 2 replicas after %.1f s", took.Seconds())
}
