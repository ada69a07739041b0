package keys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// verifierFixture is a recordVerifier with a Redis and a Kubernetes API that a test sets.
type verifierFixture struct {
	*recordVerifier

	stored     published.Order
	redis      error
	result     supersedeResult
	kubernetes error
	revocation error
	did        []string
	logged     strings.Builder
}

// checkTime is the time of Redis.
var checkTime = time.UnixMilli(1_800_000_000_000)

func newVerifierFixture() *verifierFixture {
	d := &verifierFixture{}
	d.recordVerifier = &recordVerifier{
		read: func(_ context.Context, keys ...store.KeyRef) ([]store.Override, time.Time, error) {
			overrides := make([]store.Override, len(keys))
			for i := range keys {
				overrides[i].Order = d.stored
			}
			return overrides, checkTime, d.redis
		},
		supersede: func(_ context.Context, keyID string, newer published.Order) (supersedeResult, error) {
			d.did = append(d.did, fmt.Sprintf("supersede %s below %d", keyID, newer.Issued))
			return d.result, d.kubernetes
		},
		revoke: func(_ context.Context, key store.KeyRef, known, stored published.Order) error {
			d.did = append(d.did, fmt.Sprintf("revoke %s known as %d, stored as %d", key.KeyID, known.Issued, stored.Issued))
			return d.revocation
		},
		log:     slog.New(slog.NewTextHandler(&d.logged, nil)),
		pending: map[store.KeyRef]published.Order{},
	}
	return d
}

func TestVerify(t *testing.T) {
	unavailable := fmt.Errorf("%w: refused", redis.ErrUnavailable)
	marked := "supersede till below 9"
	revoked := "revoke till known as 5, stored as 9"
	for desc, test := range map[string]struct {
		set  func(*verifierFixture)
		did  []string
		left int // keys to verify again
	}{
		"nothing is stored":         {func(d *verifierFixture) { d.stored = published.Order{} }, nil, 0},
		"the same is stored":        {func(d *verifierFixture) { d.stored = published.Order{Issued: 5, Revision: 5} }, nil, 0},
		"the watch was late":        {func(*verifierFixture) {}, []string{marked}, 0},
		"a record was restored":     {func(d *verifierFixture) { d.result = keySuperseded }, []string{marked}, 0},
		"the object is gone":        {func(d *verifierFixture) { d.result = keyGone }, []string{marked, revoked}, 0},
		"it was published since":    {func(d *verifierFixture) { d.result, d.revocation = keyGone, store.ErrNewerOverride }, []string{marked, revoked}, 1},
		"Redis is unavailable":      {func(d *verifierFixture) { d.redis = unavailable }, nil, 1},
		"Redis fails later":         {func(d *verifierFixture) { d.result, d.revocation = keyGone, unavailable }, []string{marked, revoked}, 1},
		"Kubernetes is unavailable": {func(d *verifierFixture) { d.kubernetes = ErrKubernetes }, []string{marked}, 1},
		"the record has changed":    {func(d *verifierFixture) { d.kubernetes = errors.New("conflict") }, []string{marked}, 1},
		"an end that lies ahead": {
			func(d *verifierFixture) { d.stored = published.Order{Issued: checkTime.Add(time.Second).UnixMilli()} }, nil, 1,
		},
		"an unreadable override": {func(d *verifierFixture) { d.redis = redis.ErrCorrupt }, nil, 1},
	} {
		t.Run(desc, func(t *testing.T) {
			d := newVerifierFixture()
			d.stored = published.Order{Issued: 9, Revision: 1}
			test.set(d)
			d.add(store.KeyRef{MerchantID: "merchant2345", KeyID: "till"}, published.Order{Issued: 5, Revision: 5})
			d.run(t.Context())
			if diff := cmp.Diff(test.did, d.did); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
			if d.size() != test.left {
				t.Errorf("%d keys are left, want %d", d.size(), test.left)
			}
			if got := strings.Contains(d.logged.String(), "keyID=till"); got != (d.result == keySuperseded) {
				t.Errorf("logged %q", d.logged.String())
			}
		})
	}
}

// A record that is newer than the verified one stays.
func TestVerify_NewerRecordStays(t *testing.T) {
	d := newVerifierFixture()
	key := store.KeyRef{MerchantID: "merchant2345", KeyID: "till"}
	d.add(key, published.Order{Issued: 5, Revision: 5})
	d.remove(key, published.Order{Issued: 5, Revision: 4})
	if d.size() != 1 {
		t.Error("a newer record was removed")
	}
	d.remove(key, published.Order{Issued: 6, Revision: 1})
	if d.size() != 0 {
		t.Error("an older record was kept")
	}
}

// A key whose published object is gone ends for all, also as Redis knows it of another replica. One that is published anew meanwhile stays.
func TestVerify_Gone(t *testing.T) {
	client := storetest.Open(t, redistest.Start(t).URL())
	keys := Published{Secrets: fake.NewClientset().CoreV1().Secrets("credentials")}
	for name, anew := range map[string]bool{"gone": false, "published anew meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			key := newKeyRef(revised(name, 0))
			issue := func(ago time.Duration) published.Order {
				at := time.Now().Add(-ago).UnixMilli()
				override := store.Override{
					KeyRef: key, Order: published.Order{Issued: at, Revision: at}, Accepted: []store.Accepted{{Digest: apikey.NewDigest(name)}},
				}
				if err := client.WriteOverride(t.Context(), override); err != nil {
					t.Fatal(err)
				}
				return override.Order
			}
			known := issue(2 * time.Hour)
			issue(30 * time.Minute) // the rotation that this replica has missed
			v := newRecordVerifier(client, keys, slog.New(slog.DiscardHandler))
			supersede := v.supersede
			v.supersede = func(ctx context.Context, keyID string, newer published.Order) (supersedeResult, error) {
				result, err := supersede(ctx, keyID, newer)
				if anew {
					issue(0)
				}
				return result, err
			}
			v.add(key, known)
			v.run(t.Context())
			_, err := client.Admit(t.Context(), store.Admission{
				MerchantID: key.MerchantID, KeyID: key.KeyID, Digest: apikey.NewDigest(name), Limit: ratelimit.Policy{RequestsPerSecond: 10, Burst: 10},
			})
			if anew && err != nil || !anew && !errors.Is(err, store.ErrKeyRejected) {
				t.Errorf("the key: %v", err)
			}
		})
	}
}
