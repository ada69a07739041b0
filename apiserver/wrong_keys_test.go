package apiserver_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver"
	"github.com/merchant-operator/merchant-operator/test/redistest"
)

// One client presents nothing but wrong keys, as fast as it can, and shares its address with a till. The till notices nothing,
// and the wrong keys cost Redis a bounded number of scripts.
func TestWrongKeysShutOutNobody(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	own := redistest.Start(t)
	r := f.start(func(o *apiserver.Options) { o.RedisURL = own.URL() })
	r.awaitChecked()
	server := redis.NewClient(&redis.Options{Addr: own.Addr()})
	defer func() { _ = server.Close() }()
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK) // the server learns the script

	var wrong []string
	for range 20 {
		wrong = append(wrong, f.newKey(key[8:20]).Reveal(), f.newKey(published.ID("nobody")).Reveal(), strings.Repeat("w", 40))
	}
	for range 150 { // the server learns the others
		r.call(http.MethodGet, me, wrong[0], "").want(t, http.StatusUnauthorized)
	}
	if err := server.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	const clients, each = 16, 100
	var flood sync.WaitGroup
	for client := range clients {
		flood.Go(func() {
			for n := range each {
				r.call(http.MethodGet, me, wrong[(client+n)%len(wrong)], "").want(t, http.StatusUnauthorized)
			}
		})
	}
	const good = 200
	for range good {
		r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
	}
	flood.Wait()
	r.call(http.MethodGet, me, key, "").want(t, http.StatusOK)

	stats, err := server.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	// A third of the wrong keys name a known key id. Ten of them a second are asked about, and what is under way together; all
	// others share ten reads a second.
	seconds := int(time.Since(began)/time.Second) + 1
	if trips, most := sent(t, stats)-(good+1), 20*seconds+2*clients; trips > most {
		t.Errorf("%d trips to Redis for wrong keys in %d s, want at most %d", trips, seconds, most)
	}
}

// A key that another replica has just made is good, though the replica that is asked knows nothing of it yet and is flooded with
// wrong keys of the same key id.
func TestAFreshKeyIsTakenAmongWrongKeysOfItsKeyID(t *testing.T) {
	f := newFixture(t)
	key := f.key("till", f.merchant("acme"))
	frozen, other := f.start(), f.start()
	frozen.proxy.FreezeWatches()
	wrong := f.newKey(key[8:20]).Reveal()
	for range 150 {
		frozen.call(http.MethodGet, me, wrong, "").want(t, http.StatusUnauthorized)
	}
	fresh := f.rotated(other, key)
	frozen.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
	frozen.call(http.MethodGet, me, key, "").want(t, http.StatusUnauthorized)
	frozen.call(http.MethodGet, me, wrong, "").want(t, http.StatusUnauthorized)
	frozen.call(http.MethodPost, sessions, fresh, `{"amountCents": 1}`).want(t, http.StatusCreated)
}
