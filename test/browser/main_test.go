// Package browser tests in a real browser what a payer sees of the whole product, and what a merchant's people do in the console.
package browser

import (
	"errors"
	"flag"
	"log"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/console"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/mailtest"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// All tests share a browser and an installation with all roles, of the API two replicas. Each page has a profile of its own.
var (
	sharedBrowser *browsertest.Browser
	shared        *installation
)

type installation struct {
	*fixture.Installation

	replicas   []fixture.Replica
	identities *oidctest.Provider
	console    string // URL
	mails      *mailtest.Server
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
	if i.mails, err = mailtest.Start(mailtest.Options{}); err != nil {
		return i, err
	}
	i.OnClose(i.mails.Close)
	if _, err := i.StartDispatcher("dispatcher", func(o *dispatcher.Options) {
		o.MailServer = dispatcher.MailServer{URL: "smtp://" + i.mails.Address(), From: "receipts@pay.example"}
	}); err != nil {
		return i, err
	}
	provider, stop, err := oidctest.New(i.Dir, alice, bob, carol)
	i.OnClose(stop)
	if err != nil {
		return i, err
	}
	i.identities = provider
	authz.ReviewBudget.Burst = 10_000 // all tests are the same few people, at once
	i.console, _, err = i.StartConsole("console", i.replicas[0].Internal, provider.Issuer, func(o *console.Options) {
		o.APIURL = i.replicas[0].Public
		o.RightsLifetime = 50 * time.Millisecond
	})
	return i, err
}

// patient options keep addresses for receipts, let every page come from one address, and show within a second a change of which no message came.
func patient(o *apiserver.Options) {
	o.Receipts = true
	o.PublicRateLimit = v1alpha1.RateLimit{RequestsPerSecond: 10_000, Burst: 10_000}
	o.Streams.Reread = time.Second
	o.Streams.Drain = 100 * time.Millisecond
}
