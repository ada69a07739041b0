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
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/internal/store/keystate"
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
	writing    error
	first      bool
	changed    int64 // the revision of the record, if it is not that of its issue
	did        []string
	logged     strings.Builder
}

// checkTime is the time of Redis.
var checkTime = time.UnixMilli(1_800_000_000_000)

func newVerifierFixture() *verifierFixture {
	d := &verifierFixture{}
	d.recordVerifier = &recordVerifier{
		read: func(_ context.Context, keys ...keystate.Ref) ([]keystate.Override, time.Time, error) {
			overrides := make([]keystate.Override, len(keys))
			for i := range keys {
				overrides[i].Order = d.stored
			}
			return overrides, checkTime, d.redis
		},
		supersede: func(_ context.Context, keyID string, newer published.Order) (supersedeResult, error) {
			d.did = append(d.did, fmt.Sprintf("supersede %s below %d", keyID, newer.Issued))
			return d.result, d.kubernetes
		},
		revoke: func(_ context.Context, key keystate.Ref, known, stored published.Order) error {
			d.did = append(d.did, fmt.Sprintf("revoke %s known as %d, stored as %d", key.KeyID, known.Issued, stored.Issued))
			return d.revocation
		},
		write: func(_ context.Context, override keystate.Override) error {
			d.did = append(d.did, fmt.Sprintf("write %s as %d", override.KeyID, override.Order.Issued))
			return d.writing
		},
		servers: oneServer,
		log:     slog.New(slog.NewTextHandler(&d.logged, nil)),
		pending: map[keystate.Ref]unverified{},
	}
	return d
}

func TestVerify(t *testing.T) {
	unavailable := fmt.Errorf("%w: refused", redis.ErrUnavailable)
	marked := "supersede till below 9"
	revoked := "revoke till known as 5, stored as 9"
	written, week := "write till as 5", checkTime.Add(-keystate.OverrideLifetime).UnixMilli()
	for desc, test := range map[string]struct {
		set  func(*verifierFixture)
		did  []string
		left int // keys to verify again
	}{
		"nothing is stored": {func(d *verifierFixture) { d.stored = published.Order{} }, nil, 0},
		"nothing is stored of a record that changed in the last 7 days": {
			func(d *verifierFixture) { d.stored, d.changed = published.Order{}, week+1 }, []string{written}, 0,
		},
		"nothing is stored of a record that changed before":  {func(d *verifierFixture) { d.stored, d.changed = published.Order{}, week-10 }, nil, 0},
		"nothing is stored of the first record of a new key": {func(d *verifierFixture) { d.stored, d.changed, d.first = published.Order{}, week+1, true }, nil, 0},
		"an older one is stored":                             {func(d *verifierFixture) { d.stored = published.Order{Issued: 4, Revision: 9} }, []string{written}, 0},
		"an older one is stored, and a newer one meanwhile": {
			func(d *verifierFixture) { d.stored, d.writing = published.Order{Issued: 4}, keystate.ErrNewerOverride }, []string{written}, 1,
		},
		"Redis fails when it is written": {
			func(d *verifierFixture) { d.stored, d.writing = published.Order{Issued: 4}, unavailable }, []string{written}, 1,
		},
		"the same is stored":        {func(d *verifierFixture) { d.stored = published.Order{Issued: 5, Revision: 5} }, nil, 0},
		"the watch was late":        {func(*verifierFixture) {}, []string{marked}, 0},
		"a record was restored":     {func(d *verifierFixture) { d.result = keySuperseded }, []string{marked}, 0},
		"the object is gone":        {func(d *verifierFixture) { d.result = keyGone }, []string{marked, revoked}, 0},
		"it was published since":    {func(d *verifierFixture) { d.result, d.revocation = keyGone, keystate.ErrNewerOverride }, []string{marked, revoked}, 1},
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
			till := keystate.Ref{MerchantID: "merchant2345", KeyID: "till"}
			d.add(unverified{keystate.Override{Ref: till, Order: published.Order{Issued: 5, Revision: 5 + d.changed}}, d.first})
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

// An ApiKey was rotated or disabled while no other replica watched. One that starts has the new record in its first list, and a peer whose watch
// is frozen learns of it.
func TestVerify_FirstList(t *testing.T) {
	client := storetest.New(t, redistest.Start(t).URL())
	hour := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for name, change := range map[string]func(*published.KeyRecord){
		"rotated": func(r *published.KeyRecord) {
			*r = r.Rotated(published.Current{Digest: apikey.NewDigest("next"), CreatedAt: time.Now()}, v1alpha1.RotationTrigger, 0, time.Now())
		},
		"disabled": func(r *published.KeyRecord) {
			r.State, r.Revision = v1alpha1.ApiKeyDisabled, r.NextRevision(time.Now())
		},
	} {
		for _, stored := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stored %t", name, stored), func(t *testing.T) {
				record := revised(fmt.Sprint(name, stored), hour.UnixMilli())
				record.Generation, record.Current.CreatedAt = 1, hour
				frozen := admission.Request{
					MerchantID: record.MerchantID, KeyID: record.KeyID, Digest: record.Current.Digest, Order: record.Order(), Accepted: true,
					Limit: ratelimit.Policy{RequestsPerSecond: 100, Burst: 100},
				}
				if stored {
					if err := client.Keys.WriteOverride(t.Context(), newOverride(record)); err != nil {
						t.Fatal(err)
					}
				}
				w := NewOverrides(client.Keys, client.Client, Published{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
				w.KeyUnverified(record)
				w.verifier.run(t.Context())
				if overrides, _, err := client.Keys.Overrides(t.Context(), newKeyRef(record)); err != nil || (overrides[0].Order != published.Order{}) != stored {
					t.Errorf("of a new key there is %+v, %v", overrides, err)
				}
				change(&record)
				w.KeyUnverified(record)
				w.verifier.run(t.Context())
				if _, err := client.Admit(t.Context(), frozen); !errors.Is(err, admission.ErrKeyRejected) {
					t.Errorf("a replica whose watch is frozen, about the old key: %v", err)
				}
				if w.verifier.size() != 0 {
					t.Error("it is verified again")
				}
			})
		}
	}
}

// A record that is newer than the verified one stays.
func TestVerify_NewerRecordStays(t *testing.T) {
	d := newVerifierFixture()
	key := keystate.Ref{MerchantID: "merchant2345", KeyID: "till"}
	d.add(unverified{Override: keystate.Override{Ref: key, Order: published.Order{Issued: 5, Revision: 5}}})
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
	client := storetest.New(t, redistest.Start(t).URL())
	keys := Published{Secrets: fake.NewClientset().CoreV1().Secrets("credentials")}
	for name, anew := range map[string]bool{"gone": false, "published anew meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			key := newKeyRef(revised(name, 0))
			issue := func(ago time.Duration) published.Order {
				at := time.Now().Add(-ago).UnixMilli()
				override := keystate.Override{
					Ref: key, Order: published.Order{Issued: at, Revision: at}, Accepted: []keystate.Accepted{{Digest: apikey.NewDigest(name)}},
				}
				if err := client.Keys.WriteOverride(t.Context(), override); err != nil {
					t.Fatal(err)
				}
				return override.Order
			}
			known := issue(2 * time.Hour)
			issue(30 * time.Minute) // the rotation that this replica has missed
			v := newRecordVerifier(client.Keys, client, keys, slog.New(slog.DiscardHandler))
			supersede := v.supersede
			v.supersede = func(ctx context.Context, keyID string, newer published.Order) (supersedeResult, error) {
				result, err := supersede(ctx, keyID, newer)
				if anew {
					issue(0)
				}
				return result, err
			}
			v.add(unverified{Override: keystate.Override{Ref: key, Order: known}})
			v.run(t.Context())
			_, err := client.Admit(t.Context(), admission.Request{
				MerchantID: key.MerchantID, KeyID: key.KeyID, Digest: apikey.NewDigest(name), Limit: ratelimit.Policy{RequestsPerSecond: 10, Burst: 10},
			})
			if anew && err != nil || !anew && !errors.Is(err, admission.ErrKeyRejected) {
				t.Errorf("the key: %v", err)
			}
		})
	}
}
