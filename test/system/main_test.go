// Package system tests the whole product: the operator, API replicas and dispatchers, each with its own least-privilege
// account, on a real kube-apiserver and a real redis-server, seen only from outside, through kubectl-like writes and HTTP.
package system

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
)

// installation is an operator with replicas of the API and dispatchers.
type installation struct {
	*fixture.Installation

	replicas []fixture.Replica
	proxies  []*kubeproxy.Proxy // between each replica and the kube-apiserver
}

// shared is the one installation of this package; each test makes its own merchants in a namespace of its own.
var shared *installation

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	run := func() error { return runTests(m) }
	if os.Getenv(dispatcherRedis) != "" {
		run = runDispatcher
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// runTests leaves the tests' own result to the testing package, which reports it when TestMain returns.
func runTests(m *testing.M) (err error) {
	shared, err = install(3, 2)
	defer func() { err = errors.Join(err, shared.Close()) }()
	if err != nil {
		return err
	}
	m.Run()
	return nil
}

func install(replicas, dispatchers int) (i *installation, err error) {
	i = &installation{}
	if i.Installation, err = fixture.Install(); err != nil {
		return i, err
	}
	if _, err := i.StartOperator("operator", func(o *controllers.Options) {
		o.LeaderElect, o.LastUseInterval = false, 100*time.Millisecond
	}); err != nil {
		return i, err
	}
	for n := range replicas {
		if err := i.addReplica(fmt.Sprintf("apiserver-%d", n+1)); err != nil {
			return i, err
		}
	}
	for n := range dispatchers {
		_, err := i.StartDispatcher(fmt.Sprintf("dispatcher-%d", n+1), func(o *dispatcher.Options) {
			o.PublishUsesInterval = 100 * time.Millisecond
			o.Schedule = dispatcher.Schedule{0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}
		})
		if err != nil {
			return i, err
		}
	}
	return i, nil
}

func (i *installation) addReplica(name string) error {
	proxy, kubeconfig, err := i.Proxy(fixture.APIServerAccount, name)
	if err != nil {
		return err
	}
	replica, err := i.StartAPIServer(name, func(o *apiserver.Options) { o.Kubeconfig = kubeconfig })
	i.proxies = append(i.proxies, proxy)
	i.replicas = append(i.replicas, replica)
	return err
}
