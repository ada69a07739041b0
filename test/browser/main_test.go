// Package browser tests in a real browser what a payer sees of the whole product.
package browser

import (
	"errors"
	"flag"
	"log"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// All tests share a browser and an installation with two replicas of the API. Each page has a profile of its own.
var (
	sharedBrowser *browsertest.Browser
	shared        *installation
)

type installation struct {
	*fixture.Installation

	replicas []fixture.Replica
}

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	if err := runTests(m); err != nil {
		log.Fatal(err)
	}
}

// runTests leaves the tests' own result to the testing package, which reports it when TestMain returns.
func runTests(m *testing.M) (err error) {
	browser, closeBrowser, err := browsertest.New()
	if err != nil {
		return err
	}
	defer closeBrowser()
	sharedBrowser = browser
	shared, err = install()
	defer func() { err = errors.Join(err, shared.Close()) }()
	if err != nil {
		return err
	}
	m.Run()
	return nil
}

func install() (i *installation, err error) {
	i = &installation{}
	if i.Installation, err = fixture.Install(); err != nil {
		return i, err
	}
	if _, err := i.StartOperator("operator", func(o *controllers.Options) { o.LeaderElect = false }); err != nil {
		return i, err
	}
	for _, name := range []string{"apiserver-1", "apiserver-2"} {
		replica, err := i.StartAPIServer(name, patient)
		if err != nil {
			return i, err
		}
		i.replicas = append(i.replicas, replica)
	}
	return i, nil
}

// patient options let every page come from one address, and show within a second a change of which no message came.
func patient(o *apiserver.Options) {
	o.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 10_000}
	o.Streams.Reread = time.Second
	o.Streams.Drain = 100 * time.Millisecond
}
