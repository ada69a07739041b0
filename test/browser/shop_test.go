package browser

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/browsertest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

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

func call(t *testing.T, base, method, path, bearer, body string) fixture.Answer {
	t.Helper()
	answer, err := fixture.Call(http.DefaultClient, base, method, path, bearer, body)
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
