package directory

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// claiming publishes the digest of a key for an ApiKey of its own, as one that was externally generated.
func claiming(presented string, at time.Time) func(*published.KeyRecord) {
	return func(r *published.KeyRecord) {
		digest := apikey.NewDigest(presented)
		r.Current = published.Current{Digest: digest, CreatedAt: at}
		r.HandledDigest = &digest
	}
}

// changesOfVictim are what may happen to a victim's record. In no case does its key, dead or alive, open another one's merchant.
var changesOfVictim = map[string]func(*testing.T, fixture, published.KeyRecord){
	"nothing": func(*testing.T, fixture, published.KeyRecord) {},
	"rotated over HTTP": func(t *testing.T, f fixture, victim published.KeyRecord) {
		t.Helper()
		_ = f.keyInformer.Update(newSecret(t, rotatedRecord(t, victim, 0)))
	},
	"rotated by trigger, in its overlap": func(t *testing.T, f fixture, victim published.KeyRecord) {
		t.Helper()
		_ = f.keyInformer.Update(newSecret(t, rotatedRecord(t, victim, time.Hour)))
	},
	"disabled": func(t *testing.T, f fixture, victim published.KeyRecord) {
		t.Helper()
		victim.State = v1alpha1.ApiKeyDisabled
		victim.Revision++
		_ = f.keyInformer.Update(newSecret(t, victim))
	},
	"expired": func(t *testing.T, f fixture, victim published.KeyRecord) {
		t.Helper()
		victim.ExpiresAt = new(now.Add(-time.Second))
		victim.Revision++
		_ = f.keyInformer.Update(newSecret(t, victim))
	},
	"undecodable": func(t *testing.T, f fixture, victim published.KeyRecord) {
		t.Helper()
		_ = f.keyInformer.Update(broken(newSecret(t, victim), "7"))
	},
	"of a newer version": func(t *testing.T, f fixture, victim published.KeyRecord) {
		t.Helper()
		_ = f.keyInformer.Update(newerVersion(newSecret(t, victim), "7"))
	},
	"deleted": func(t *testing.T, f fixture, victim published.KeyRecord) {
		t.Helper()
		_ = f.keyInformer.Delete(newSecret(t, victim))
	},
	"deleted, with its tombstone": func(t *testing.T, f fixture, victim published.KeyRecord) {
		t.Helper()
		f.writeTombstone(t, victim)
		_ = f.keyInformer.Delete(newSecret(t, victim))
	},
	"vanished on a relist": func(t *testing.T, f fixture, victim published.KeyRecord) {
		t.Helper()
		_, thief := issue(t, "thief", "thief")
		_ = f.keyInformer.Replace([]any{f.publishThief(t, thief, victim)}, "9")
	},
}

func rotatedRecord(t *testing.T, record published.KeyRecord, overlap time.Duration) published.KeyRecord {
	t.Helper()
	key, err := apikey.New(record.KeyID)
	if err != nil {
		t.Fatal(err)
	}
	at := now.Add(time.Hour)
	return record.Rotated(published.Current{Digest: key.Digest(), Prefix: key.Prefix(), CreatedAt: at}, v1alpha1.RotationAPI, overlap, at)
}

// writeTombstone publishes the tombstone of a key.
func (f fixture) writeTombstone(t *testing.T, record published.KeyRecord) {
	t.Helper()
	configMap, err := published.EncodeTombstone(namespace, published.Tombstone{
		Kind: published.TombstoneApiKey, ID: record.KeyID, Source: record.Source, EndedAt: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Informer("tombstone").Add(configMap)
}

// publishThief is the thief's Secret as it was published.
func (f fixture) publishThief(t *testing.T, thief, victim published.KeyRecord) any {
	t.Helper()
	digest := victim.Current.Digest
	thief.Current = published.Current{Digest: digest, CreatedAt: now}
	thief.HandledDigest = &digest
	return newSecret(t, thief)
}

func TestClaims_StolenDigest(t *testing.T) {
	for kind, external := range map[string]bool{"a generated key": false, "an externally generated key": true} {
		for what, become := range changesOfVictim {
			for order, thiefFirst := range map[string]bool{"the victim is published first": false, "the thief is published first": true} {
				t.Run(kind+", "+what+", "+order, func(t *testing.T) {
					f := newFixture()
					_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("victim")))
					_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("thief")))
					presented, victim := issue(t, "victim", "victim")
					if external {
						presented = strings.Repeat("v", 40)
						claiming(presented, now.Add(-time.Hour))(&victim)
					}
					_, thief := issue(t, "thief", "thief", claiming(presented, now))
					secrets := []any{newSecret(t, victim), newSecret(t, thief)}
					if thiefFirst {
						secrets[0], secrets[1] = secrets[1], secrets[0]
					}
					for _, secret := range secrets {
						_ = f.keyInformer.Add(secret)
					}
					become(t, f, victim)
					got, err := f.Identify(presented, now)
					if err == nil && got.KeyID != victim.KeyID {
						t.Errorf("the key opens the thief's merchant: %+v", got)
					}
					if wantLive := what == "nothing" || what == "rotated by trigger, in its overlap" || what == "of a newer version"; got.Live != wantLive {
						t.Errorf("live %v, %v", got.Live, err)
					}
				})
			}
		}
	}
}

// A key moves to another cluster without touching the till: its key id means nothing here, and its digest is claimed.
func TestClaims_KeyOfAnotherCluster(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	moved, _ := issue(t, "key in another cluster", "acme")
	_, record := f.publish(t, "till", "acme", claiming(moved, now))
	got, err := f.Identify(moved, now)
	if err != nil || got.KeyID != record.KeyID || !got.Live || got.Prefix != "" {
		t.Errorf("%+v, %v", got, err)
	}
	// If the key id was ever here, only its own record can accept it.
	_, former := issue(t, "key in another cluster", "acme")
	f.writeTombstone(t, former)
	if _, err := f.Identify(moved, now); !errors.Is(err, ErrUnknown) {
		t.Errorf("a key whose id has a tombstone: %v", err)
	}
	_ = f.Informer("tombstone").Replace(nil, "9")
	if _, err := f.Identify(moved, now); err != nil {
		t.Errorf("when the tombstone is gone: %v", err)
	}
}

func TestTombstone_EndsPublishedKey(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	generated, record := f.publish(t, "till", "acme")
	external := strings.Repeat("e", 40)
	_, claim := f.publish(t, "external", "acme", claiming(external, now))
	f.writeTombstone(t, record)
	f.writeTombstone(t, claim)
	for _, presented := range []string{generated, external, reissue(t, "till")} {
		if _, err := f.Identify(presented, now); !errors.Is(err, ErrUnknown) {
			t.Errorf("got %v", err)
		}
	}
}

func TestClaims_ContestEnds(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	shared := strings.Repeat("s", 40)
	_, first := f.publish(t, "first", "acme", claiming(shared, now.Add(-time.Hour)))
	_, second := f.publish(t, "second", "acme", claiming(shared, now))
	_, third := f.publish(t, "third", "acme", claiming(shared, now.Add(-2*time.Hour)))
	want := func(keyID string) {
		t.Helper()
		got, err := f.Identify(shared, now)
		if got.KeyID != keyID || (err == nil) == (keyID == "") {
			t.Errorf("key id %q, %v, want %q", got.KeyID, err, keyID)
		}
	}
	want(third.KeyID)
	_ = f.keyInformer.Delete(newSecret(t, second))
	want(third.KeyID)
	_ = f.keyInformer.Delete(newSecret(t, third))
	want("") // no other key inherits it
	if _, err := f.Identify(shared, now); !errors.Is(err, ErrDigestClaimed) {
		t.Errorf("a digest whose holder is gone: %v", err)
	}
	_ = f.keyInformer.Delete(newSecret(t, first))
	want("")
	if len(f.index.external) != 0 || len(f.index.contested) != 0 {
		t.Errorf("%d and %d digests are indexed, want none", len(f.index.external), len(f.index.contested))
	}
	_, fresh := f.publish(t, "fresh", "acme", claiming(shared, now))
	want(fresh.KeyID)
}

// An ApiKey that is deleted and created again gets its digest back, also where both are heard of at once.
func TestClaims_ApiKeyReplaced(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	presented := strings.Repeat("s", 40)
	f.publish(t, "first", "acme", claiming(presented, now.Add(-time.Hour)))
	_, again := issue(t, "second", "acme", claiming(presented, now))
	_ = f.keyInformer.Replace([]any{newSecret(t, again)}, "9")
	if got, err := f.Identify(presented, now); err != nil || got.KeyID != again.KeyID || !got.Live {
		t.Errorf("%+v, %v", got, err)
	}
}

// So does one whose former record is put back, such as by a restore, until the operator deletes that again.
func TestClaims_FormerRecordPutBack(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	presented := strings.Repeat("s", 40)
	_, former := f.publish(t, "first", "acme", claiming(presented, now.Add(-time.Hour)))
	f.writeTombstone(t, former)
	_ = f.keyInformer.Delete(newSecret(t, former))
	_, again := f.publish(t, "second", "acme", claiming(presented, now))
	want := func(when string) {
		t.Helper()
		if got, err := f.Identify(presented, now); err != nil || got.KeyID != again.KeyID || !got.Live {
			t.Errorf("%s: %+v, %v", when, got, err)
		}
	}
	want("created again")
	_ = f.keyInformer.Add(newSecret(t, former))
	want("put back")
	former.Revision++
	_ = f.keyInformer.Update(newSecret(t, former))
	want("changed")
	_ = f.keyInformer.Delete(newSecret(t, former))
	want("deleted again")
}

func TestClaims_RecordChanges(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	old, record := f.publish(t, "till", "acme")
	fresh := reissue(t, "till")
	rotated := record.Rotated(
		published.Current{Digest: apikey.NewDigest(fresh), Prefix: "mk_live_", CreatedAt: now.Add(time.Second)}, v1alpha1.RotationAPI, 0, now)
	_ = f.keyInformer.Update(newSecret(t, rotated))

	if got, err := f.Identify(old, now); err != nil || got.Live {
		t.Errorf("the old key: live %v, %v", got.Live, err)
	}
	if got, err := f.Identify(fresh, now); err != nil || !got.Live || got.Generation != 2 {
		t.Errorf("the new key: live %v, generation %d, %v", got.Live, got.Generation, err)
	}
	if len(f.index.external) != 0 {
		t.Errorf("%d digests of generated keys are indexed", len(f.index.external))
	}
}

// A record that was put back accepts nothing on its own: Redis decides, which knows of the newer one.
func TestClaims_OlderRecordPutBack(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(newConfigMap(t, merchantRecord("acme")))
	old, before := f.publish(t, "till", "acme")
	rotated := rotatedRecord(t, before, 0)
	_ = f.keyInformer.Update(newSecret(t, rotated))
	refused := func(when string, presented string) {
		t.Helper()
		if got, err := f.Identify(presented, now); err != nil || got.Live {
			t.Errorf("%s: live %v, %v, want a key that Redis decides about", when, got.Live, err)
		}
	}
	_ = f.keyInformer.Update(newSecret(t, before))
	refused("put back", old)
	_ = f.keyInformer.Replace([]any{newSecret(t, before)}, "9")
	refused("listed again", old)
	before.Revision = now.Add(24 * time.Hour).UnixMilli()
	_ = f.keyInformer.Update(newSecret(t, before))
	refused("with a fresh revision", old)
	before.Superseded = true
	_ = f.keyInformer.Update(newSecret(t, before))
	refused("marked", old)

	issued := rotatedRecord(t, before, 0)
	fresh := reissue(t, "till")
	issued.Current.Digest = apikey.NewDigest(fresh)
	_ = f.keyInformer.Update(newSecret(t, issued))
	if got, err := f.Identify(fresh, now); err != nil || !got.Live {
		t.Errorf("issued anew: live %v, %v", got.Live, err)
	}
	refused("after it was issued anew", old)
}
