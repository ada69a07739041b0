package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/controllers/index"
	"github.com/merchant-operator/merchant-operator/controllers/lastuse"
)

// newLastUseFixture has an operator that looks at uses all the time.
func newLastUseFixture() *fixture {
	GinkgoHelper()
	f := newFixture()
	f.stop()
	f.startOperator(func(o *Options) { o.LastUseInterval, o.OldKeys.Check = 20*time.Millisecond, 20*time.Millisecond })
	f.merchant(aMerchant("coffee"))
	return f
}

// publishLastUses does what the dispatcher does: it says what it has read of a key.
func (f *fixture) publishLastUses(key *v1alpha1.ApiKey, read, since time.Time, uses ...published.DigestUses) {
	GinkgoHelper()
	keyID := published.ID(key.UID)
	shard := published.LastUseShard(keyID)
	Eventually(func(g Gomega) {
		configMap := &corev1.ConfigMap{}
		name := types.NamespacedName{Namespace: f.credentials, Name: published.LastUseName(shard)}
		g.Expect(f.kube.Get(context.Background(), name, configMap)).To(Succeed(), "the operator creates it")
		all, err := published.DecodeLastUses(configMap)
		g.Expect(err).NotTo(HaveOccurred())
		all.ReadTime, all.RecordingSince, all.Keys[keyID] = read, since, ""
		for _, use := range uses {
			all.Keys[keyID], _ = all.Keys[keyID].Merge(use, 0)
		}
		want, err := published.EncodeLastUses(f.credentials, shard, all)
		g.Expect(err).NotTo(HaveOccurred())
		want.ResourceVersion = configMap.ResourceVersion
		g.Expect(f.kube.Update(context.Background(), want)).To(Succeed())
	}).Should(Succeed())
}

func (f *fixture) use(key apikey.Key, at time.Time) published.DigestUses {
	return published.DigestUses(fmt.Sprintf("%s %d", published.DigestTag(key.Digest()), at.Unix()))
}

func (f *fixture) awaitLastUse(key *v1alpha1.ApiKey, used time.Time) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		f.read(key)
		g.Expect(key.Status.LastUsedTime).NotTo(BeNil())
		g.Expect(key.Status.LastUsedTime.Unix()).To(Equal(used.Unix()))
	}).Should(Succeed())
}

func (f *fixture) awaitOldKeyInUse(key *v1alpha1.ApiKey, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		f.read(key)
		condition := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.OldKeyInUseCondition)
		g.Expect(condition).NotTo(BeNil())
		g.Expect(string(condition.Status)+" "+condition.Reason).To(Equal(string(status)+" "+reason), condition.Message)
		g.Expect(condition.ObservedGeneration).To(Equal(key.Generation))
	}).Should(Succeed())
}

var _ = Describe("The last use of a key", func() {
	It("is in its status, which no reconciliation takes away", func() {
		f := newLastUseFixture()
		key, other := f.key(aKey("till", "coffee")), f.key(aKey("web", "coffee"))
		till, web := f.delivered("till-key"), f.delivered("web-key")
		Expect(key.Status.LastUsedTime).To(BeNil())
		now := time.Now()
		used := now.Add(-5 * time.Hour)
		f.publishLastUses(key, now, now.Add(-24*time.Hour), f.use(till, used))
		f.awaitLastUse(key, used)
		f.publishLastUses(other, now, now.Add(-24*time.Hour), f.use(web, used))
		f.awaitLastUse(other, used)
		f.poke(key, "apikey")
		f.awaitLastUse(key, used)

		version := other.ResourceVersion
		f.poke(other, "apikey")
		f.read(other)
		Expect(other.ResourceVersion).To(Equal(version), "nothing is written again")
	})

	It("of a ConfigMap that cannot be read is nobody's, and the others' are reported", func() {
		f := newLastUseFixture()
		key := f.key(aKey("till", "coffee"))
		till := f.delivered("till-key")
		now := time.Now()
		f.publishLastUses(key, now, now.Add(-24*time.Hour), f.use(till, now.Add(-5*time.Hour)))
		for shard := range published.LastUseShards {
			if shard != published.LastUseShard(published.ID(key.UID)) {
				configMap := &corev1.ConfigMap{}
				configMap.Namespace, configMap.Name = f.credentials, published.LastUseName(shard)
				change(f, configMap, func(c *corev1.ConfigMap) { c.Data = map[string]string{"uses.json": "{"} })
			}
		}
		f.publishLastUses(key, now, now.Add(-24*time.Hour), f.use(till, now.Add(-2*time.Hour)))
		f.awaitLastUse(key, now.Add(-2*time.Hour))
	})
})

var _ = Describe("The condition OldKeyInUse", func() {
	It("is there from the first key on, and says of an old one whether it is used", func() {
		f := newLastUseFixture()
		key := f.key(aKey("till", "coffee").trigger("a").overlap(24 * time.Hour))
		f.awaitOldKeyInUse(key, metav1.ConditionFalse, v1alpha1.ReasonNoOldKey)
		old := f.delivered("till-key")

		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		f.awaitOldKeyInUse(key, metav1.ConditionUnknown, v1alpha1.ReasonUsesUnknown)
		fresh := f.delivered("till-key")

		now := time.Now()
		f.publishLastUses(key, now, now.Add(-24*time.Hour), f.use(old, now.Add(-20*time.Minute)), f.use(fresh, now.Add(-time.Minute)))
		f.awaitOldKeyInUse(key, metav1.ConditionTrue, v1alpha1.ReasonOldKeyUsed)
		f.awaitLastUse(key, now.Add(-time.Minute))
		Expect(key.Status.PreviousKeys[0].LastUsedTime.Unix()).To(Equal(now.Add(-20 * time.Minute).Unix()))

		f.publishLastUses(key, now, now.Add(-24*time.Hour), f.use(old, now.Add(-3*time.Hour)), f.use(fresh, now.Add(-time.Minute)))
		f.awaitOldKeyInUse(key, metav1.ConditionFalse, v1alpha1.ReasonOldKeyUnused)
		f.publishLastUses(key, now, now.Add(-time.Hour), f.use(old, now.Add(-3*time.Hour)))
		f.awaitOldKeyInUse(key, metav1.ConditionUnknown, v1alpha1.ReasonUsesUnknown)
	})

	It("warns an hour before the end, once", func() {
		f := newLastUseFixture()
		key := f.key(aKey("till", "coffee").trigger("a").overlap(50 * time.Minute))
		old := f.delivered("till-key")
		now := time.Now()
		f.publishLastUses(key, now, now.Add(-24*time.Hour), f.use(old, now.Add(-5*time.Minute)))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
		f.awaitOldKeyInUse(key, metav1.ConditionTrue, v1alpha1.ReasonOverlapEndsSoon)
		f.poke(key, "apikey")
		f.poke(key, "apikey")
		Eventually(func() []string { // an event is written beside the pass that emits it
			return slices.DeleteFunc(f.events(key), func(event string) bool {
				return !strings.HasPrefix(event, "Warning "+v1alpha1.ReasonOverlapEndsSoon)
			})
		}).Should(ConsistOf(ContainSubstring(old.Prefix())))
	})

	// kubectl wait compares the generation of the condition: it must not read of the key before the rotation that it waits for.
	It("never says that no old key is used while a rotation is to come", func() {
		f := newLastUseFixture()
		key := f.key(aKey("till", "coffee").trigger("a").overlap(24 * time.Hour))
		old := f.delivered("till-key")
		now := time.Now()
		f.publishLastUses(key, now, now.Add(-24*time.Hour), f.use(old, now.Add(-time.Minute)))
		f.awaitOldKeyInUse(key, metav1.ConditionFalse, v1alpha1.ReasonNoOldKey)
		watching, err := client.NewWithWatch(environment.Config, client.Options{Scheme: administrator.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		changes, err := watching.Watch(context.Background(), &v1alpha1.ApiKeyList{}, client.InNamespace(f.namespace))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(changes.Stop)
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		for {
			var event watch.Event
			Eventually(changes.ResultChan()).Should(Receive(&event))
			seen := event.Object.(*v1alpha1.ApiKey)
			condition := meta.FindStatusCondition(seen.Status.Conditions, v1alpha1.OldKeyInUseCondition)
			if seen.Generation != key.Generation || condition == nil || condition.ObservedGeneration != key.Generation {
				continue
			}
			Expect(condition.Status).NotTo(Equal(metav1.ConditionFalse), condition.Message)
			if condition.Status == metav1.ConditionTrue {
				break
			}
		}
	})
})

// rounds returns how many ApiKeys of each namespace so many rounds report. What is reported stays outdated, as its tenant can make it with every
// status.
func rounds(t *testing.T, count int, keysOf map[string]int) map[string]int {
	t.Helper()
	const credentials = "credentials"
	used := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	shards := map[int]published.LastUses{}
	var objects []client.Object
	for namespace, keys := range keysOf {
		for n := range keys {
			uid, digest := types.UID(fmt.Sprint(namespace, n)), apikey.NewDigest(fmt.Sprint(namespace, n))
			id := published.ID(uid)
			record, err := published.EncodeKey(credentials, published.KeyRecord{
				KeyID: id, MerchantID: published.ID("merchant"), Source: published.Source{Namespace: namespace, Name: id, UID: uid}, Generation: 1, Revision: 1,
				Current: published.Current{Digest: digest, Prefix: "mk_live_x", CreatedAt: used}, State: v1alpha1.ApiKeyActive,
				LastRotation: published.RotationEvent{Time: used, Cause: v1alpha1.RotationInitial},
			})
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, record, &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id, UID: uid}})
			shard := published.LastUseShard(id)
			if shards[shard].Keys == nil {
				shards[shard] = published.LastUses{ReadTime: used, RecordingSince: used, Keys: map[string]published.DigestUses{}}
			}
			shards[shard].Keys[id] = published.DigestUses(fmt.Sprintf("%s %d", published.DigestTag(digest), used.Unix()))
		}
	}
	for shard, uses := range shards {
		configMap, err := published.EncodeLastUses(credentials, shard, uses)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, configMap)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&v1alpha1.ApiKey{}, index.ApiKeys.Field, index.ApiKeys.Values).Build()
	outdated := make(chan event.TypedGenericEvent[*v1alpha1.ApiKey], lastUseWrites)
	l := &lastUses{client: stored, index: lastuse.New(stored, credentials), namespace: credentials, outdated: outdated}
	seen, reported := map[types.UID]bool{}, map[string]int{}
	for range count {
		if err := l.round(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range len(outdated) {
			if key := (<-outdated).Object; !seen[key.UID] {
				seen[key.UID] = true
				reported[key.Namespace]++
			}
		}
	}
	return reported
}

// A tenant with many keys in use, whose statuses are outdated all the time, delays the statuses of no other tenant.
func TestLastUses_Neighbour(t *testing.T) {
	got := rounds(t, 1, map[string]int{"attacker": 400, "victim": 20})
	if want := map[string]int{"attacker": lastUseWrites - 20, "victim": 20}; !maps.Equal(got, want) {
		t.Errorf("a round reports %v, want %v", got, want)
	}
}

// Several such tenants use up each round, but not at the same ConfigMaps.
func TestLastUses_Neighbours(t *testing.T) {
	keys := map[string]int{"victim": 12}
	for n := range 6 {
		keys[fmt.Sprint("attacker-", n)] = 40
	}
	if got := rounds(t, 4, keys); got["victim"] < keys["victim"] {
		t.Errorf("4 rounds report %d keys of the victim", got["victim"])
	}
}
