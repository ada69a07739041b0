package directory

import (
	"errors"
	"testing"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// testKey makes a test key of the ApiKey with the uid test, and its record.
func testKey(t *testing.T) (plaintext string, record published.KeyRecord) {
	t.Helper()
	_, record = issue(t, "test", "acme", func(r *published.KeyRecord) { r.Test = true })
	key, err := record.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	record.Current.Digest, record.Current.Prefix = key.Digest(), key.Prefix()
	return key.Reveal(), record
}

func TestTheModeIsThatOfTheApiKey(t *testing.T) {
	f := newFixture()
	_ = f.merchantInformer.Add(configMapOf(t, merchantRecord("acme")))
	live, _ := f.publish(t, "till", "acme")
	test, record := testKey(t)
	_ = f.keyInformer.Add(secretOf(t, record))
	if !apikey.IsTest(test) || apikey.IsTest(live) {
		t.Fatalf("labels: %.8s, %.8s", test, live)
	}
	for presented, isTest := range map[string]bool{live: false, test: true} {
		if got, err := f.Identify(presented, now); err != nil || got.TestMode != isTest || !got.Live {
			t.Errorf("%.8s: %+v, %v", presented, got, err)
		}
	}
	record.State, record.Revision = v1alpha1.ApiKeyDisabled, 2
	_ = f.keyInformer.Update(secretOf(t, record))
	if got, err := f.Identify(test, now); !errors.Is(err, ErrDisabled) || !got.TestMode {
		t.Errorf("a disabled test key: %+v, %v", got, err)
	}
}

// Whoever has a test key may try to have its digest published as that of a live key, and the other way round.
func TestTheLabelOfAKeyIsBinding(t *testing.T) {
	live, _ := issue(t, "elsewhere-live", "acme")
	test, _ := testKey(t)
	for _, c := range []struct {
		presented string
		test      bool
	}{{live, true}, {test, false}} {
		f := newFixture()
		_ = f.merchantInformer.Add(configMapOf(t, merchantRecord("acme")))
		digest := apikey.DigestOf(c.presented)
		f.publish(t, "claimant", "acme", func(r *published.KeyRecord) {
			r.Test, r.HandledDigest = c.test, &digest
			r.Current.Digest, r.Current.Prefix = digest, ""
		})
		if got, err := f.Identify(c.presented, now); !errors.Is(err, ErrWrongMode) || got.Live {
			t.Errorf("%.8s as a key of test mode %t: %+v, %v", c.presented, c.test, got, err)
		}
	}
}
