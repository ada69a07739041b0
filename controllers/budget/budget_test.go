package budget

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

const credentials = "credentials"

// before is a time at which no tombstone has expired.
var before = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)

// deleted are ApiKeys or Merchants of one Merchant that were deleted one after another, the first at a second.
type deleted struct {
	merchant string
	count    int
	second   int
}

// uid returns the UID of the n-th one.
func (d deleted) uid(n int) types.UID { return types.UID(fmt.Sprintf("%s %d", d.merchant, n)) }

// tombstones returns the tombstones in namespace shops.
func (d deleted) tombstones(kind published.TombstoneKind) []published.Tombstone {
	var all []published.Tombstone
	for n := range d.count {
		one := published.Tombstone{
			Kind: kind, ID: published.ID(d.uid(n)), Source: published.Source{Namespace: "shops", Name: "till", UID: d.uid(n)},
			EndedAt: time.Date(2026, 1, 1, 0, 0, d.second+n, 0, time.UTC), MerchantID: published.ID(types.UID(d.merchant)),
		}
		if kind == published.TombstoneMerchant {
			one.MerchantID, one.Source.Name = "", d.merchant
		}
		all = append(all, one)
	}
	return all
}

// of returns the object of the n-th one.
func (d deleted) of(n int) client.Object {
	return &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", UID: d.uid(n)}}
}

// many are that many Merchants, each of which has deleted one object.
func many(count, second int) []deleted {
	var all []deleted
	for n := range count {
		all = append(all, deleted{fmt.Sprint("bait-", n), 1, second + n})
	}
	return all
}

// newIndex returns an index over the tombstones. If replaced, each ApiKey has a claim to a replaced key.
func newIndex(t *testing.T, kind published.TombstoneKind, replaced bool, all ...deleted) *Index {
	t.Helper()
	if replaced {
		return newClaimIndex(t, kind, 1, all...)
	}
	return newClaimIndex(t, kind, 0, all...)
}

// newClaimIndex returns an index over the tombstones. Each ApiKey has so many claims to replaced keys.
func newClaimIndex(t *testing.T, kind published.TombstoneKind, claims int, all ...deleted) *Index {
	t.Helper()
	var objects []client.Object
	for _, d := range all {
		for _, tombstone := range d.tombstones(kind) {
			configMap, err := published.EncodeTombstone(credentials, tombstone)
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, configMap)
			for number := range claims {
				claim, err := published.EncodeDigestClaim(credentials, published.DigestClaim{
					Digest: apikey.NewDigest(fmt.Sprint(tombstone.ID, number)), Source: tombstone.Source, KeyID: tombstone.ID,
					ClaimedAt: tombstone.EndedAt, Replaced: true,
				})
				if err != nil {
					t.Fatal(err)
				}
				objects = append(objects, claim)
			}
		}
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.ConfigMap{}, SubjectField, SubjectValues).WithIndex(&corev1.Secret{}, ReplacedField, ReplacedValues).Build()
	return New(stored, stored, credentials)
}

// What is forgotten of a namespace with too many tombstones of ApiKeys: of each Merchant so many.
func TestSurplus(t *testing.T) {
	attacker, victim := deleted{"attacker", 1500, 100}, deleted{"victim", 5, 0}
	for name, test := range map[string]struct {
		all  []deleted
		want map[string]int
	}{
		"within the budget":                {[]deleted{{"attacker", 995, 100}, victim}, nil},
		"one Merchant":                     {[]deleted{attacker}, map[string]int{"attacker": 500}},
		"a neighbour with few":             {[]deleted{attacker, victim}, map[string]int{"attacker": 505}},
		"a neighbour with half":            {[]deleted{attacker, {"victim", 500, 0}}, map[string]int{"attacker": 1000}},
		"a neighbour with more than half":  {[]deleted{attacker, {"victim", 600, 0}}, map[string]int{"attacker": 1000, "victim": 100}},
		"a Merchant for each deleted one":  {append(many(990, 100), deleted{"victim", 15, 0}), map[string]int{"victim": 5}},
		"more Merchants than the budget":   {many(1003, 0), map[string]int{"bait-0": 1, "bait-1": 1, "bait-2": 1}},
		"a surplus, and a small neighbour": {[]deleted{{"attacker", 998, 0}, {"victim", 3, 9999}}, map[string]int{"attacker": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			surplus, err := newIndex(t, published.TombstoneApiKey, false, test.all...).Surplus(t.Context(), "shops")
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]int{}
			for _, d := range test.all {
				for n, tombstone := range d.tombstones(published.TombstoneApiKey) {
					for _, e := range surplus {
						if e.ID != tombstone.ID {
							continue
						}
						if got[d.merchant]++; n >= test.want[d.merchant] {
							t.Errorf("number %d of %s is forgotten before an older one", n, d.merchant)
						}
					}
				}
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("forgotten: %v, want %v", got, test.want)
			}
		})
	}
}

// Of ApiKeys with a replaced key nothing is forgotten.
func TestSurplus_Replaced(t *testing.T) {
	surplus, err := newIndex(t, published.TombstoneApiKey, true, deleted{"attacker", 1500, 0}).Surplus(t.Context(), "shops")
	if err != nil || len(surplus) > 0 {
		t.Errorf("%d are forgotten, %v", len(surplus), err)
	}
}

// Which deleted objects keep their finalizer: the latest ones of the Merchants that have deleted the most.
func TestHolds(t *testing.T) {
	attacker, victim := deleted{"attacker", 1500, 0}, deleted{"victim", 5, 9999}
	for name, test := range map[string]struct {
		kind     published.TombstoneKind
		replaced bool
		all      []deleted
		of       client.Object
		want     bool
	}{
		"ApiKeys, the first":                       {published.TombstoneApiKey, true, []deleted{attacker}, attacker.of(999), false},
		"ApiKeys, one too many":                    {published.TombstoneApiKey, true, []deleted{attacker}, attacker.of(1000), true},
		"ApiKeys, a neighbour":                     {published.TombstoneApiKey, true, []deleted{attacker, victim}, victim.of(4), false},
		"ApiKeys, the attacker beside a neighbour": {published.TombstoneApiKey, true, []deleted{attacker, victim}, attacker.of(995), true},
		"ApiKeys that can be forgotten":            {published.TombstoneApiKey, false, []deleted{attacker}, attacker.of(1400), false},
		"ApiKeys, what never was":                  {published.TombstoneApiKey, true, []deleted{attacker}, victim.of(0), false},
		"a Merchant created again and again":       {published.TombstoneMerchant, false, []deleted{attacker}, attacker.of(1000), true},
		"a Merchant, its neighbour":                {published.TombstoneMerchant, false, []deleted{attacker, victim}, victim.of(4), false},
		"more Merchants than the budget":           {published.TombstoneMerchant, false, many(1003, 0), deleted{merchant: "bait-1002"}.of(0), true},
		"within the budget":                        {published.TombstoneMerchant, false, many(999, 0), deleted{merchant: "bait-998"}.of(0), false},
	} {
		t.Run(name, func(t *testing.T) {
			held, err := newIndex(t, test.kind, test.replaced, test.all...).Holds(t.Context(), test.kind, test.of, before)
			if err != nil || held != test.want {
				t.Errorf("held: %t, %v; want %t", held, err, test.want)
			}
		})
	}
}

// An ApiKey that had many digests leaves as many claims, each of which is an object in etcd and in the memory of the operator.
func TestHolds_ManyClaims(t *testing.T) {
	const claims = 32
	attacker, victim := deleted{"attacker", 70, 0}, deleted{"victim", 1, 9999}
	index := newClaimIndex(t, published.TombstoneApiKey, claims, attacker, victim)
	for of, want := range map[client.Object]bool{attacker.of(20): false, attacker.of(69): true, victim.of(0): false} {
		if held, err := index.Holds(t.Context(), published.TombstoneApiKey, of, before); err != nil || held != want {
			t.Errorf("%s is held: %t, %v; want %t", of.GetUID(), held, err, want)
		}
	}
	// 71 x 32 claims are 2,272. With nine ApiKeys less there is room again.
	want := time.Date(2026, 1, 1, 0, 0, 8, 0, time.UTC).Add(published.TombstoneRetention)
	if until, err := index.Full(t.Context(), published.TombstoneApiKey, "shops", before); err != nil || !until.Equal(want) {
		t.Errorf("full until %s, %v; want %s", until, err, want)
	}
}

// Deletions are held until older ones have expired, whether or not the tombstones are deleted by then.
func TestHolds_Expired(t *testing.T) {
	attacker := deleted{"attacker", 1001, 0}
	all := newIndex(t, published.TombstoneMerchant, false, attacker)
	for second, want := range map[int]bool{-1: true, 0: false, 1002: false} {
		now := time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC).Add(published.TombstoneRetention)
		if held, err := all.Holds(t.Context(), published.TombstoneMerchant, attacker.of(1000), now); err != nil || held != want {
			t.Errorf("held %d s after the first one expires: %t, %v; want %t", second, held, err, want)
		}
	}
}

// The cache may not have the tombstone of the object yet, which was written just before.
func TestHolds_BeforeTheCacheHasIt(t *testing.T) {
	attacker := deleted{"attacker", 1001, 0}
	all := newIndex(t, published.TombstoneMerchant, false, attacker)
	attacker.count--
	late := newIndex(t, published.TombstoneMerchant, false, attacker)
	late.apiReader = all.apiReader
	if held, err := late.Holds(t.Context(), published.TombstoneMerchant, attacker.of(1000), before); err != nil || !held {
		t.Errorf("held: %t, %v", held, err)
	}
}

// In a namespace with twice the budget of tombstones that are not forgotten, no new object of the kind is published until enough have expired.
func TestFull(t *testing.T) {
	expires := func(second int) time.Time {
		return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC).Add(published.TombstoneRetention)
	}
	for name, test := range map[string]struct {
		kind     published.TombstoneKind
		replaced bool
		count    int
		now      time.Time
		want     time.Time
	}{
		"ApiKeys":                       {published.TombstoneApiKey, true, 2000, before, expires(0)},
		"ApiKeys, many more":            {published.TombstoneApiKey, true, 2010, before, expires(10)},
		"ApiKeys, one less":             {published.TombstoneApiKey, true, 1999, before, time.Time{}},
		"ApiKeys that can be forgotten": {published.TombstoneApiKey, false, 2010, before, time.Time{}},
		"ApiKeys, of which one expired": {published.TombstoneApiKey, true, 2000, expires(0), time.Time{}},
		"Merchants":                     {published.TombstoneMerchant, false, 2000, before, expires(0)},
		"Merchants, one less":           {published.TombstoneMerchant, false, 1999, before, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			index := newIndex(t, test.kind, test.replaced, deleted{"attacker", test.count, 0})
			for range 2 {
				if until, err := index.Full(t.Context(), test.kind, "shops", test.now); err != nil || !until.Equal(test.want) {
					t.Errorf("full until %s, %v; want %s", until, err, test.want)
				}
			}
			if until, err := index.Full(t.Context(), test.kind, "others", test.now); err != nil || !until.IsZero() {
				t.Errorf("another namespace is full until %s, %v", until, err)
			}
		})
	}
}

// Each of thousands of deletions asks for all tombstones of the namespace, which are decoded once.
func TestIndex_DecodesOnce(t *testing.T) {
	attacker := deleted{"attacker", 1100, 0}
	index := newIndex(t, published.TombstoneApiKey, true, attacker)
	listed := index.cache
	ask := func() bool {
		t.Helper()
		if surplus, err := index.Surplus(t.Context(), "shops"); err != nil || len(surplus) > 0 {
			t.Fatalf("%d to forget, %v", len(surplus), err)
		}
		held, err := index.Holds(t.Context(), published.TombstoneApiKey, attacker.of(1099), before)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	first := ask()
	index.cache = withoutData{listed}
	if second := ask(); !first || !second {
		t.Errorf("held: %t, and without anything to decode: %t", first, second)
	}
}

// withoutData is a cache whose objects cannot be decoded.
type withoutData struct{ client.Reader }

// List implements client.Reader.
func (w withoutData) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := w.Reader.List(ctx, list, options...)
	switch list := list.(type) {
	case *corev1.ConfigMapList:
		for n := range list.Items {
			list.Items[n].Data = nil
		}
	case *corev1.SecretList:
		for n := range list.Items {
			list.Items[n].Data = nil
		}
	}
	return err
}
