package apiserver_test

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/apiserver"
)

// wrongClocks are those of a replica on a node with the wrong time.
var wrongClocks = map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour}

// startAt starts a replica whose clock is ahead by so much.
func (f *fixture) startAt(ahead time.Duration) *replica {
	f.t.Helper()
	return f.start(func(o *apiserver.Options) { o.Now = func() time.Time { return time.Now().Add(ahead) } })
}

// The end of a key and the end of an overlap are times of Redis, also where no override has them.
func TestReplicaClock_Ends(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	merchant := f.merchant("acme")
	expiring := func(in time.Duration) func(*published.KeyRecord) {
		return func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(in).UTC()) }
	}
	replaced := func(key string, in time.Duration) func(*published.KeyRecord) {
		return func(r *published.KeyRecord) {
			r.Previous = []published.Previous{{Digest: apikey.NewDigest(key), ValidUntil: time.Now().Add(in).UTC()}}
		}
	}
	const live, ended = "an-older-till-key-made-elsewhere-in-its-overlap", "an-older-till-key-made-elsewhere-after-its-overlap"
	f.key("rotated", merchant, replaced(live, 30*time.Minute))
	f.key("rotated-before", merchant, replaced(ended, -time.Minute))
	rows := []struct {
		name, key string
		status    int
	}{
		{"a key that expires in 30 minutes", f.key("expiring", merchant, expiring(30*time.Minute)), http.StatusOK},
		{"a key that expired a minute ago", f.key("expired", merchant, expiring(-time.Minute)), http.StatusUnauthorized},
		{"a key in its overlap for 30 minutes", live, http.StatusOK},
		{"a key whose overlap ended a minute ago", ended, http.StatusUnauthorized},
	}
	for clock, ahead := range wrongClocks {
		r := f.startAt(ahead)
		for _, row := range rows {
			t.Run(clock+", "+row.name, func(t *testing.T) {
				r.call(http.MethodGet, me, row.key, "").want(t, row.status)
			})
		}
	}
}

// A key that has not ended may rotate, and one that has may not.
func TestReplicaClock_Rotate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	merchant := f.merchant("acme")
	for clock, ahead := range wrongClocks {
		t.Run(clock, func(t *testing.T) {
			live := f.key("live "+clock, merchant, func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(30 * time.Minute).UTC()) })
			ended := f.key("ended "+clock, merchant, func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(-time.Minute).UTC()) })
			r := f.startAt(ahead)
			r.call(http.MethodPost, rotate, ended, "").want(t, http.StatusUnauthorized)
			fresh := f.rotated(r, live)
			r.call(http.MethodGet, me, live, "").want(t, http.StatusUnauthorized)
			r.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
		})
	}
}

// Past the bound of wrong keys, too, Redis says whether a key has ended.
func TestReplicaClock_WrongKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	merchant := f.merchant("acme")
	for clock, ahead := range wrongClocks {
		t.Run(clock, func(t *testing.T) {
			live := f.key("live "+clock, merchant, func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(30 * time.Minute).UTC()) })
			ended := f.key("ended "+clock, merchant, func(r *published.KeyRecord) { r.ExpiresAt = new(time.Now().Add(-time.Minute).UTC()) })
			r := f.startAt(ahead)
			for _, key := range []string{live, ended} {
				parsed, err := apikey.Parse(key)
				if err != nil {
					t.Fatal(err)
				}
				wrong := f.newKey(parsed.ID()).Reveal()
				for range 110 {
					r.call(http.MethodGet, me, wrong, "").want(t, http.StatusUnauthorized)
				}
			}
			r.call(http.MethodGet, me, live, "").want(t, http.StatusOK)
			r.call(http.MethodGet, me, ended, "").want(t, http.StatusUnauthorized)
		})
	}
}

// A tombstone ends the key on a replica that hears of nothing else, whatever the clock of the one that hears of it.
func TestReplicaClock_Tombstone(t *testing.T) {
	t.Parallel()
	for clock, ahead := range wrongClocks {
		t.Run(clock, func(t *testing.T) {
			f := newFixture(t)
			key := f.key("till", f.merchant("acme"))
			frozen := f.start()
			frozen.proxy.FreezeWatches()
			frozen.call(http.MethodGet, me, key, "").want(t, http.StatusOK)
			wrong := f.startAt(ahead)
			f.writeTombstone(f.keySecret(key))
			wrong.eventuallyStatus(key, http.StatusUnauthorized)
			frozen.eventuallyStatus(key, http.StatusUnauthorized) // once the override is written
		})
	}
}

// A published key that is gone ends a rotation that its finder has missed, whatever the clock of the finder.
func TestReplicaClock_Vanished(t *testing.T) {
	t.Parallel()
	for clock, ahead := range wrongClocks {
		t.Run(clock, func(t *testing.T) {
			f := newFixture(t)
			old := f.key("till", f.merchant("acme"))
			frozen, wrong := f.start(), f.startAt(ahead)
			frozen.proxy.FreezeWatches()
			wrong.proxy.Cut()
			fresh := f.rotated(frozen, old)
			if err := kube.CoreV1().Secrets(f.namespace).Delete(t.Context(), f.keySecret(old).Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			wrong.proxy.Restore()
			frozen.eventuallyStatus(fresh, http.StatusUnauthorized)
			wrong.eventuallyStatus(fresh, http.StatusUnauthorized)
		})
	}
}

// A restored record is marked for the operator at once, whatever the clock of the replica that marks it.
func TestReplicaClock_Restored(t *testing.T) {
	t.Parallel()
	for clock, ahead := range wrongClocks {
		t.Run(clock, func(t *testing.T) {
			f := newFixture(t)
			old := f.key("till", f.merchant("acme"))
			older := f.keySecret(old)
			wrong := f.startAt(ahead)
			fresh := f.rotated(wrong, old)
			f.putBack(older, func(*published.KeyRecord) {})
			f.eventuallySuperseded(old)
			wrong.call(http.MethodGet, me, fresh, "").want(t, http.StatusOK)
			wrong.call(http.MethodGet, me, old, "").want(t, http.StatusUnauthorized)
			record, err := published.DecodeKey(f.keySecret(old))
			if err != nil || time.UnixMilli(record.Revision).After(time.Now()) {
				t.Errorf("the mark has revision %d, which is a time to come: %v", record.Revision, err)
			}
		})
	}
}
