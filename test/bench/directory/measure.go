package directory

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/load"
	"github.com/merchant-operator/merchant-operator/test/kubeproxy"
)

// measureFloors fills the store of an informer with as many Secrets as there are keys: complete, and stripped by a transform to what
// informers need (name, namespace and version) and a digest of 32 bytes. An index would come on top.
func (b *bench) measureFloors(ctx context.Context, r *results) {
	secrets := fixture.Must(b.Kube.CoreV1().Secrets(b.few.name).List(ctx, metav1.ListOptions{Limit: 1}))
	wire := fixture.Must(secrets.Items[0].Marshal())
	r.InformerBytes = bytesPerObject(b.settings.keys, func(i int) *corev1.Secret {
		secret := &corev1.Secret{}
		fixture.Check(secret.Unmarshal(wire))
		secret.Name, secret.UID = fmt.Sprintf("key-%012d", i), types.UID(fmt.Sprintf("%036d", i))
		return secret
	})
	const digest = 32
	r.TransformBytes = bytesPerObject(b.settings.keys, func(i int) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("key-%012d", i), Namespace: b.many.name, ResourceVersion: strconv.Itoa(1_000_000 + i)},
			Data:       map[string][]byte{"digest": make([]byte, digest)},
		}
	})
}

// bytesPerObject is the mean memory of n objects in a store.
func bytesPerObject(n int, object func(i int) *corev1.Secret) float64 {
	before := heapOfThisProcess()
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for i := range n {
		fixture.Check(store.Add(object(i)))
	}
	after := heapOfThisProcess()
	runtime.KeepAlive(store)
	return (after - before) / float64(n)
}

func heapOfThisProcess() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// start is one start of a replica.
type start struct {
	ReadySeconds float64        `json:"readySeconds"`
	CPUSeconds   float64        `json:"cpuSeconds"` // until it was ready
	HeapBytes    float64        `json:"heapBytes"`  // in use after a collection
	Memory       fixture.Memory `json:"memory"`
}

// measureStarts starts replicas with few and many keys in turn. The last of each keeps running.
func (b *bench) measureStarts(ctx context.Context, r *results) {
	for i := range b.settings.starts {
		if i > 0 {
			b.few.replica.Stop()
			b.many.replica.Stop()
		}
		r.FewStarts = append(r.FewStarts, b.startReplica(ctx, b.few, b.Kubeconfig))
		r.ManyStarts = append(r.ManyStarts, b.startReplica(ctx, b.many, b.Kubeconfig))
	}
}

func (b *bench) startReplica(ctx context.Context, p *population, kubeconfig string) (s start) {
	started := time.Now()
	p.replica = b.StartAPI(ctx, kubeconfig, p.name, b.redis.URL(), "--pprof")
	s.ReadySeconds, s.CPUSeconds = time.Since(started).Seconds(), p.replica.CPU().Seconds()
	s.HeapBytes = p.replica.LiveHeap(ctx)
	s.Memory = p.replica.Memory()
	return s
}

// withKeys is a target that uses one key after the other, so that each lookup finds its memory uncached.
func withKeys(keys []string, status int) load.Target {
	return load.Target{Name: http.StatusText(status), Status: status, Next: func(connection, n int, before []byte) []byte {
		const apart = 7919 // between connections, and between consecutive keys
		key := keys[(connection*apart+n*apart)%len(keys)]
		if before == nil {
			return fixture.ReadProfile(key).Bytes()
		}
		copy(before[bytes.Index(before, []byte("Bearer "))+len("Bearer "):], key)
		return before
	}}
}

// measureLookups measures requests to both replicas in turn.
func (b *bench) measureLookups(ctx context.Context, r *results) {
	unknown := fixture.UnknownKeys(1 << 12)
	schedule := load.Schedule{Connections: 16, WarmUp: b.Length() / 4, Duration: b.Length()}
	for range b.Rounds {
		for _, p := range []*population{b.few, b.many} {
			refusal, _ := p.replica.Measure(ctx, withKeys(unknown, http.StatusUnauthorized), schedule)
			r.Lookups[p.name+"@401"] = append(r.Lookups[p.name+"@401"], refusal)
		}
		for _, p := range []*population{b.few, b.many} {
			accepted, _ := p.replica.Measure(ctx, withKeys(p.keys, http.StatusOK), schedule)
			r.Lookups[p.name+"@200"] = append(r.Lookups[p.name+"@200"], accepted)
		}
	}
}

// measureBursts holds back the watch of a replica while keys are rotated, and measures requests while all changes arrive at once: the
// worst burst, without the CPU of the writers. In turn it measures requests while nothing changes. It uses keys that do not change.
func (b *bench) measureBursts(ctx context.Context, r *results) {
	b.few.replica.Stop() // leave the CPU to the other
	b.many.replica.Stop()
	proxy := fixture.Must(kubeproxy.Start(b.Config))
	b.OnStop(func() error { proxy.Close(); return nil })
	b.startReplica(ctx, b.many, fixture.Must(proxy.Kubeconfig(b.Directory, "proxied")))
	replica, changing, steady := b.many.replica, b.many.keys[:changes], withKeys(b.many.keys[changes:], http.StatusOK)
	// Short, so that a burst of some tens of milliseconds is more than 1 % of it, and affects the p99.
	const length = 500 * time.Millisecond
	schedule := load.Schedule{Connections: 4, WarmUp: length, Duration: length}
	for i := range b.settings.bursts {
		calm, _ := replica.Measure(ctx, steady, schedule)
		proxy.FreezeWatches()
		fixture.Check(fixture.Each(ctx, writers, changes, func(ctx context.Context, k int) error { return b.many.issue(ctx, k, int64(i)+2) }))
		release := time.AfterFunc(length, proxy.ThawWatches)
		burst, _ := replica.Measure(ctx, steady, schedule)
		release.Stop()
		proxy.ThawWatches()
		r.Calm, r.Burst = append(r.Calm, calm), append(r.Burst, burst)
		fixture.Check(fixture.Eventually(ctx, func() error { // until each of the new keys is accepted
			return load.Times(ctx, load.Target{Name: "rotated keys", Address: replica.Address, Status: http.StatusOK, Next: func(_, n int, _ []byte) []byte {
				return fixture.ReadProfile(changing[n]).Bytes()
			}}, changes)
		}))
	}
	replica.Stop() // before its proxy
}
