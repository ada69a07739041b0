// Package budget bounds how many tombstones the deleted objects of a namespace leave, and shares that number fairly among the
// Merchants there: nobody who creates and deletes objects chooses which tombstones of a neighbour are forgotten.
package budget

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
)

// Tombstones is the number of tombstones of each class that the deleted objects of a namespace may leave. There are three classes:
//
//   - ApiKeys without a replaced key. The surplus is forgotten.
//   - ApiKeys with claims to replaced keys, which open again once the claims are forgotten. Nothing is forgotten: the surplus keeps
//     its finalizer. Such a tombstone counts as often as it has claims, for each of them is an object.
//   - Merchants, whose payments are taken again once the tombstone is forgotten. The surplus keeps its finalizer too.
//
// Objects that keep the finalizer have tombstones too. With twice as many that are not forgotten, no new object of the kind is published.
const Tombstones = 1000

// most is the weight of tombstones that are not forgotten with which a namespace is full.
const most = 2 * Tombstones

// Index finds tombstones in the cache by the namespace and kind of the deleted object, and claims to replaced keys by the namespace of
// their owner. One Index is shared, because it remembers what it has decoded.
type Index struct {
	cache client.Reader
	// apiReader reads from the API server what the cache does not have yet.
	apiReader client.Reader
	// namespace is the credentials namespace, which has the tombstones.
	namespace string
	// tombstones has published.Tombstone, and claims the key id of a published.DigestClaim, by version.
	tombstones, claims *lru.Cache
	// full has until when a namespace is full, by subject. It holds for fullFor.
	full *lru.Cache
}

const (
	// maxDecoded is how many objects are remembered decoded, of each kind: 16 MiB of tombstones.
	maxDecoded = 1 << 15
	// maxFull is of how many namespaces it is remembered until when they are full.
	maxFull = 1000
	// fullFor is how long it is remembered: a tenant can create thousands of objects in a full namespace.
	fullFor = 10 * time.Second
)

// New returns an Index of what the cache has in the credentials namespace.
func New(cache, apiReader client.Reader, credentialsNamespace string) *Index {
	return &Index{
		cache: cache, apiReader: apiReader, namespace: credentialsNamespace,
		tombstones: lru.New(maxDecoded), claims: lru.New(maxDecoded), full: lru.New(maxFull),
	}
}

// version is the version of an object.
type version struct {
	name            string
	uid             types.UID
	resourceVersion string
}

// decodeOnce returns what is in the version of an object. Each deletion asks for all tombstones of its namespace.
func decodeOnce[T any](known *lru.Cache, object client.Object, decode func() (T, error)) (T, error) {
	of := version{object.GetName(), object.GetUID(), object.GetResourceVersion()}
	if decoded, ok := known.Get(of); ok {
		if decoded, ok := decoded.(T); ok {
			return decoded, nil
		}
	}
	decoded, err := decode()
	if err == nil {
		known.Add(of, decoded)
	}
	return decoded, err
}

// The names of the indexes.
const (
	SubjectField  = "tombstone.subject"
	ReplacedField = "claim.replaced"
)

// Add adds the indexes to the cache.
func Add(ctx context.Context, cache client.FieldIndexer) error {
	if err := cache.IndexField(ctx, &corev1.ConfigMap{}, SubjectField, SubjectValues); err != nil {
		return fmt.Errorf("index tombstones: %w", err)
	}
	if err := cache.IndexField(ctx, &corev1.Secret{}, ReplacedField, ReplacedValues); err != nil {
		return fmt.Errorf("index claims to replaced keys: %w", err)
	}
	return nil
}

// SubjectValues returns the kind and the namespace of the object that a tombstone is of.
func SubjectValues(object client.Object) []string {
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok || configMap.Labels[published.Label] != published.LabelTombstone {
		return nil
	}
	tombstone, err := published.DecodeTombstone(configMap)
	if err != nil {
		return nil
	}
	return []string{subject(tombstone.Kind, tombstone.Source.Namespace)}
}

func subject(kind published.TombstoneKind, namespace string) string {
	return string(kind) + "/" + namespace
}

// ReplacedValues returns the namespace of the owner of a claim to a replaced key.
func ReplacedValues(object client.Object) []string {
	secret, ok := object.(*corev1.Secret)
	if !ok || secret.Labels[published.Label] != published.LabelDigest {
		return nil
	}
	claim, err := published.DecodeDigestClaim(secret)
	if err != nil || !claim.Replaced {
		return nil
	}
	return []string{claim.Source.Namespace}
}

// Entry is a tombstone and its ConfigMap, which belongs to the cache.
type Entry struct {
	published.Tombstone

	ConfigMap *corev1.ConfigMap

	// claims is how many claims to replaced keys the ApiKey has.
	claims int
}

// weight is how often the tombstone counts.
func (e Entry) weight() int { return max(e.claims, 1) }

// merchant returns what the tombstones of one Merchant have in common. A Merchant that is created again has another id and the same name.
func (e Entry) merchant() string {
	if e.Kind == published.TombstoneMerchant {
		return e.Source.Name
	}
	return e.MerchantID
}

// Surplus returns the tombstones of ApiKeys of a namespace to forget: the oldest ones of the Merchants that have the most.
func (i *Index) Surplus(ctx context.Context, namespace string) ([]Entry, error) {
	all, err := i.list(ctx, published.TombstoneApiKey, namespace, Tombstones+1)
	if err != nil || len(all) <= Tombstones {
		return nil, err
	}
	replaced, _, err := i.replaced(ctx, namespace)
	if err != nil {
		return nil, err
	}
	forgettable := slices.DeleteFunc(all, func(e Entry) bool { return replaced[e.ID] > 0 })
	slices.SortFunc(forgettable, func(a, b Entry) int { return -older(a, b) })
	return beyond(forgettable, Tombstones), nil
}

// Holds reports whether a deleted object must keep its finalizer, because too many tombstones that cannot be forgotten are older than its
// own. Those that have expired do not count.
func (i *Index) Holds(ctx context.Context, kind published.TombstoneKind, object client.Object, now time.Time) (bool, error) {
	all, err := i.unforgettable(ctx, kind, object.GetNamespace(), Tombstones, now)
	if err != nil || weight(all) < Tombstones {
		return false, err
	}
	id := published.ID(object.GetUID())
	isOwn := func(e Entry) bool { return e.ID == id }
	if !slices.ContainsFunc(all, isOwn) {
		own, err := i.own(ctx, published.Tombstone{Kind: kind, ID: id}, object.GetNamespace())
		if err != nil || own == nil {
			return false, err // what never was leaves nothing
		}
		all = append(all, *own)
	}
	slices.SortFunc(all, older)
	return slices.ContainsFunc(beyond(all, Tombstones), isOwn), nil
}

// Full returns until when a namespace is full: so many of its tombstones of the kind cannot be forgotten that no new object of the kind is
// published. Zero: it is not full.
func (i *Index) Full(ctx context.Context, kind published.TombstoneKind, namespace string, now time.Time) (until time.Time, err error) {
	if known, ok := i.full.Get(subject(kind, namespace)); ok {
		if last, ok := known.(fullness); ok && now.Sub(last.at).Abs() < fullFor {
			return last.until, nil
		}
	}
	all, err := i.unforgettable(ctx, kind, namespace, most, now)
	if err != nil {
		return time.Time{}, err
	}
	slices.SortFunc(all, older)
	for left := weight(all); left >= most; all = all[1:] {
		left -= all[0].weight()
		until = all[0].Expires()
	}
	if !until.IsZero() {
		i.full.Add(subject(kind, namespace), fullness{now, until})
	}
	return until, nil
}

// fullness is until when a namespace is full, as it was seen at a time.
type fullness struct{ at, until time.Time }

func older(a, b Entry) int { return cmp.Or(a.EndedAt.Compare(b.EndedAt), cmp.Compare(a.ID, b.ID)) }

func weight(all []Entry) (sum int) {
	for _, e := range all {
		sum += e.weight()
	}
	return sum
}

// list returns the tombstones of a kind and namespace in the cache; none if there are fewer than atLeast, because it is not worth decoding them.
func (i *Index) list(ctx context.Context, kind published.TombstoneKind, namespace string, atLeast int) ([]Entry, error) {
	var list corev1.ConfigMapList
	err := i.cache.List(ctx, &list, client.MatchingFields{SubjectField: subject(kind, namespace)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the tombstones of a namespace: %w", err)
	}
	if len(list.Items) < atLeast {
		return nil, nil
	}
	all := make([]Entry, 0, len(list.Items))
	for n := range list.Items {
		configMap := &list.Items[n]
		tombstone, err := decodeOnce(i.tombstones, configMap, func() (published.Tombstone, error) { return published.DecodeTombstone(configMap) })
		if err == nil {
			all = append(all, Entry{Tombstone: tombstone, ConfigMap: configMap})
		}
	}
	return all, nil
}

// read returns the tombstone from the API server; nil: there is none that can be read.
func (i *Index) read(ctx context.Context, tombstone published.Tombstone) (*Entry, error) {
	name := types.NamespacedName{Namespace: i.namespace, Name: tombstone.Name()}
	configMap := new(corev1.ConfigMap)
	if err := i.apiReader.Get(ctx, name, configMap); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("read the tombstone %s: %w", name.Name, err)
	}
	found, err := published.DecodeTombstone(configMap)
	if err != nil {
		return nil, nil //nolint:nilerr // it cannot be counted
	}
	return &Entry{Tombstone: found, ConfigMap: configMap}, nil
}

// unforgettable returns the tombstones of a kind and namespace that are not forgotten before they expire; none if they cannot weigh as much as
// atLeast, because it is not worth decoding them.
func (i *Index) unforgettable(
	ctx context.Context, kind published.TombstoneKind, namespace string, atLeast int, now time.Time,
) ([]Entry, error) {
	expired := func(e Entry) bool { return !now.Before(e.Expires()) }
	if kind != published.TombstoneApiKey {
		all, err := i.list(ctx, kind, namespace, atLeast)
		return slices.DeleteFunc(all, expired), err
	}
	replaced, count, err := i.replaced(ctx, namespace)
	if err != nil || count < atLeast {
		return nil, err
	}
	all, err := i.list(ctx, kind, namespace, 0)
	if err != nil {
		return nil, err
	}
	for n := range all {
		all[n].claims = replaced[all[n].ID]
	}
	return slices.DeleteFunc(all, func(e Entry) bool { return e.claims == 0 || expired(e) }), nil
}

// own returns the tombstone from the API server, as unforgettable has it; nil: there is none that is not forgotten.
func (i *Index) own(ctx context.Context, tombstone published.Tombstone, namespace string) (*Entry, error) {
	own, err := i.read(ctx, tombstone)
	if err != nil || own == nil || tombstone.Kind != published.TombstoneApiKey {
		return own, err
	}
	replaced, _, err := i.replaced(ctx, namespace)
	if own.claims = replaced[own.ID]; err != nil || own.claims == 0 {
		return nil, err
	}
	return own, nil
}

// replaced returns how many claims to replaced keys the ApiKeys of a namespace have, by their ids, and the sum.
func (i *Index) replaced(ctx context.Context, namespace string) (each map[string]int, sum int, err error) {
	var claims corev1.SecretList
	if err := i.cache.List(ctx, &claims, client.MatchingFields{ReplacedField: namespace}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("list the claims to replaced keys: %w", err)
	}
	each = map[string]int{}
	for n := range claims.Items {
		keyID, err := decodeOnce(i.claims, &claims.Items[n], func() (string, error) {
			claim, err := published.DecodeDigestClaim(&claims.Items[n])
			return claim.KeyID, err
		})
		if err == nil {
			each[keyID]++
			sum++
		}
	}
	return each, sum, nil
}

// beyond returns the tombstones that are not within the budget, the first ones being preferred. Each Merchant has the same share of
// the budget, but for what others do not use, and at least one tombstone while the budget has room.
func beyond(all []Entry, budget int) (surplus []Entry) {
	share, taken, within := fairShare(all, budget), map[string]int{}, make([]bool, len(all))
	take := func(fits func(e Entry) bool) {
		for n, e := range all {
			if !within[n] && fits(e) && e.weight() <= budget {
				within[n] = true
				taken[e.merchant()] += e.weight()
				budget -= e.weight()
			}
		}
	}
	take(func(e Entry) bool { return taken[e.merchant()]+e.weight() <= share })
	take(func(e Entry) bool { return taken[e.merchant()] == 0 })
	for n, e := range all {
		if !within[n] {
			surplus = append(surplus, e)
		}
	}
	return surplus
}

// fairShare returns the max-min fair share of each Merchant, at least 1.
func fairShare(all []Entry, budget int) int {
	counts := map[string]int{}
	for _, e := range all {
		counts[e.merchant()] += e.weight()
	}
	ascending := make([]int, 0, len(counts))
	for _, count := range counts {
		ascending = append(ascending, count)
	}
	slices.Sort(ascending)
	for n, count := range ascending {
		others := len(ascending) - n
		if count*others > budget {
			return max(budget/others, 1)
		}
		budget -= count
	}
	return weight(all)
}
