// Package browser tests in a real browser what a payer sees of the whole product, and what a merchant's people do in the console.
package browser

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/console"
	"github.com/merchant-operator/merchant-operator/controllers"
	"github.com/merchant-operator/merchant-operator/dispatcher"
	"github.com/merchant-operator/merchant-operator/internal/authz"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/mailtest"
	"github.com/merchant-operator/merchant-operator/test/oidctest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
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
	provider, stop, err := oidctest.New(i.Dir, alice, bob, carol, dan)
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

// shop is the one merchant of this package: keys of both modes that every replica accepts, and the token of a rail.
type shop struct{ key, testKey, rail string }

var (
	openShop sync.Once
	theShop  shop
)

func newShop(t *testing.T) shop {
	t.Helper()
	openShop.Do(func() {
		tenant := fixture.NewTenant(t, shared.Client)
		tenant.Merchant("coffee", func(m *v1alpha1.Merchant) {
			m.Spec.Currency = "EUR"
			m.Spec.Page = &v1alpha1.PageSettings{AccentColor: "#0b6e4f", ReturnURL: "https://shop.example/thanks"}
		})
		_, key := tenant.ApiKey("till", "coffee")
		_, testKey := tenant.ApiKey("sandbox", "coffee", func(k *v1alpha1.ApiKey) { k.Spec.Mode = v1alpha1.ModeTest })
		theShop = shop{key: key, testKey: testKey, rail: tenant.RailToken()}
		for _, replica := range shared.replicas {
			tenant.Eventually("the keys work", func() bool {
				return call(t, replica.Public, http.MethodGet, fixture.Me, key, "").Status == http.StatusOK &&
					call(t, replica.Public, http.MethodGet, fixture.Me, testKey, "").Status == http.StatusOK
			})
		}
	})
	if theShop.key == "" {
		t.Fatal("there is no shop")
	}
	return theShop
}

func call(t *testing.T, base, method, path, bearer, body string, headers ...string) fixture.Answer {
	t.Helper()
	answer, err := fixture.Call(http.DefaultClient, base, method, path, bearer, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// charge creates a session of 12.50 and returns its id.
func (s shop) charge(t *testing.T) string {
	t.Helper()
	created := call(t, shared.replicas[0].Public, http.MethodPost, fixture.Sessions, s.key, `{"amountCents":1250}`)
	if created.Status != http.StatusCreated {
		t.Fatalf("create: %d %s", created.Status, created.Raw)
	}
	return created.Text("sessionId")
}

// end brings a session to its final status, on the other replica than the pages are of.
func (s shop) end(t *testing.T, id, status string) {
	t.Helper()
	replica, answer := shared.replicas[1], fixture.Answer{}
	switch status {
	case "COMPLETED", "FAILED":
		answer = call(t, replica.Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", s.rail,
			fmt.Sprintf(`{"paymentRef":"bank-%s","outcome":%q,"amountCents":1250}`, id, status))
	case "CANCELLED":
		answer = call(t, replica.Public, http.MethodPost, fixture.Sessions+"/"+id+"/cancel", s.key, "")
	case "EXPIRED":
		expire(t, id)
		answer = call(t, replica.Public, http.MethodGet, "/api/v1/public/sessions/"+id, "", "")
	}
	if answer.Status != http.StatusOK || answer.Text("status") != status {
		t.Fatalf("%s: %d %s", status, answer.Status, answer.Raw)
	}
}

// expire lets a session's time be over, which takes a minute at least without reaching into Redis.
func expire(t *testing.T, id string) {
	t.Helper()
	parsed, err := session.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: shared.Redis.Addr()})
	defer func() { _ = client.Close() }()
	past := time.Now().Add(-time.Second).UnixMilli()
	if err := client.HSet(t.Context(), storetest.BucketTag(parsed.Bucket())+"session:"+id, "x", past).Err(); err != nil {
		t.Fatal(err)
	}
}

// pageURL is of the first replica.
func pageURL(id string) string { return shared.replicas[0].Public + "/pay/" + id }

func statusURL(base, id string) string { return base + "/api/v1/public/sessions/" + id }

// awaitShown waits until the page shows the section of a status, and no other.
func awaitShown(page *browsertest.Page, status string) {
	page.Until("the page shows "+status,
		`[...document.querySelectorAll('section[data-state]')].filter(s => s.checkVisibility()).map(s => s.dataset.state).join() === '`+status+`'`)
}

// awaitStream waits until the page reads a stream.
func awaitStream(t *testing.T, page *browsertest.Page, url string) {
	t.Helper()
	awaitRequests(t, page, url, "in flight", func(total, inFlight int) bool { return total > 0 && inFlight == 1 })
}
