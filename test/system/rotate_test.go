package system

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// Also in the very next call.
func TestRotate_OldKeyGets401OnEveryReplica(t *testing.T) {
	s := newTenant(t)
	apiKey, key := s.till()
	for round := range 20 {
		rotated := s.want(s.call(round%2, http.MethodPost, rotate, key, ""), http.StatusOK)
		next := rotated.Body["fullKey"].(string)
		for replica := range shared.replicas {
			s.want(s.call(replica, http.MethodGet, me, key, ""), http.StatusUnauthorized)
			s.want(s.call(replica, http.MethodGet, me, next, ""), http.StatusOK)
		}
		key = next
	}
	s.Eventually("the status counts the rotations", func() bool {
		s.AwaitReady(apiKey)
		return apiKey.Status.KeyGeneration == 21 && apiKey.Status.LastRotation.Cause == v1alpha1.RotationAPI
	})
}

func TestRotate_LosersGet401(t *testing.T) {
	s := newTenant(t)
	_, key := s.till()
	answers := make([]fixture.Answer, 8)
	var calls sync.WaitGroup
	for i := range answers {
		calls.Go(func() { answers[i] = s.call(i%2, http.MethodPost, rotate, key, "") })
	}
	calls.Wait()
	wins := 0
	for _, got := range answers {
		if got.Status == http.StatusOK {
			wins++
		} else {
			s.want(got, http.StatusUnauthorized)
		}
	}
	if wins != 1 {
		t.Errorf("%d of 8 rotations with one key won, want 1", wins)
	}
}

func TestTrigger_OldKeyInOverlap(t *testing.T) {
	s := newTenant(t)
	s.Merchant("coffee")
	apiKey, old := s.ApiKey("till", "coffee")
	s.Change(apiKey, func() { apiKey.Spec.Rotation.Trigger = "2026-11-21" })
	s.AwaitReady(apiKey)
	next := s.Delivered("till-key", "apiKey")
	if next == old {
		t.Fatal("the trigger delivered no new key")
	}
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, next, http.StatusOK)
		s.want(s.call(replica, http.MethodGet, me, old, ""), http.StatusOK)
	}
	if apiKey.Status.KeyGeneration != 2 || apiKey.Status.ObservedTrigger != "2026-11-21" {
		t.Errorf("status %+v, want generation 2 and the trigger", apiKey.Status)
	}
}

// TestRotate_RacesTrigger lets both race. If the trigger comes first, the presented key is in its overlap, from
// which nobody rotates: it gets 401 and goes on working. Either way each rotation counts once.
func TestRotate_RacesTrigger(t *testing.T) {
	const rounds = 10
	s := newTenant(t)
	s.Merchant("coffee")
	for round := range rounds {
		apiKey, _ := s.ApiKey(fmt.Sprint("till-", round), "coffee")
		key := s.fresh(apiKey, fmt.Sprintf("fresh %d", round))
		var both sync.WaitGroup
		var rotated fixture.Answer
		both.Go(func() { rotated = s.call(round%len(shared.replicas), http.MethodPost, rotate, key, "") })
		s.Change(apiKey, func() { apiKey.Spec.Rotation.Trigger = fmt.Sprintf("race %d", round) })
		both.Wait()
		generation := int64(3) // the first key, a fresh one and that of the trigger
		if rotated.Status == http.StatusUnauthorized {
			s.want(s.call(round%len(shared.replicas), http.MethodGet, me, key, ""), http.StatusOK)
		} else {
			s.want(rotated, http.StatusOK)
			generation++
		}
		s.AwaitReady(apiKey)
		if got := s.record(apiKey).Generation; got != generation {
			t.Fatalf("round %d: generation %d, want %d", round, got, generation)
		}
	}
}

// fresh changes the trigger and returns the key that is delivered for it, once every replica takes it.
func (s tenant) fresh(apiKey *v1alpha1.ApiKey, trigger string) string {
	s.T.Helper()
	s.Change(apiKey, func() { apiKey.Spec.Rotation.Trigger = trigger })
	s.AwaitReady(apiKey)
	key := s.Delivered(apiKey.Name+"-key", "apiKey")
	s.eventuallyEverywhere(key, http.StatusOK)
	return key
}

func (s tenant) publishedSecret(apiKey *v1alpha1.ApiKey) *corev1.Secret {
	s.T.Helper()
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: kubetest.CredentialsNamespace, Name: published.KeyName(published.ID(apiKey.UID))}
	if err := s.Kube.Get(s.T.Context(), name, secret); err != nil {
		s.T.Fatal(err)
	}
	return secret
}

func (s tenant) record(apiKey *v1alpha1.ApiKey) published.KeyRecord {
	s.T.Helper()
	record, err := published.DecodeKey(s.publishedSecret(apiKey))
	if err != nil {
		s.T.Fatal(err)
	}
	return record
}

// TestTrigger_AfterCrashedRotation plays a replica that dies in the middle of a rotation:
// before it wrote the override, and before it answered. Either way nobody has the key in force.
func TestTrigger_AfterCrashedRotation(t *testing.T) {
	crashes := map[string]func(tenant, *v1alpha1.ApiKey, string){
		"between the swap and the override": func(s tenant, apiKey *v1alpha1.ApiKey, _ string) { s.swapOnly(apiKey) },
		"between the override and the answer": func(s tenant, _ *v1alpha1.ApiKey, key string) {
			s.want(s.call(0, http.MethodPost, rotate, key, ""), http.StatusOK) // the answer is thrown away
		},
	}
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			s := newTenant(t)
			s.Merchant("coffee")
			apiKey, _ := s.ApiKey("till", "coffee")
			lost := s.fresh(apiKey, "before")
			crash(s, apiKey, lost)
			s.eventuallyEverywhere(lost, http.StatusUnauthorized)
			s.Eventually("the stale delivered Secret is removed", func() bool {
				return s.Gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "till-key"}})
			})
			found := s.fresh(apiKey, "the way back")
			for replica := range shared.replicas {
				s.want(s.call(replica, http.MethodGet, me, found, ""), http.StatusOK)
				s.want(s.call(replica, http.MethodGet, me, lost, ""), http.StatusUnauthorized)
			}
		})
	}
}

// swapOnly replaces the published key as the API does, and does nothing of what follows.
func (s tenant) swapOnly(apiKey *v1alpha1.ApiKey) {
	s.T.Helper()
	record := s.record(apiKey)
	next, err := apikey.New(record.KeyID)
	if err != nil {
		s.T.Fatal(err)
	}
	now := record.Current.CreatedAt
	current := published.Current{Digest: next.Digest(), Prefix: next.Prefix(), CreatedAt: now}
	encoded, err := published.EncodeKey(kubetest.CredentialsNamespace, record.Rotated(current, v1alpha1.RotationAPI, 0, now))
	if err != nil {
		s.T.Fatal(err)
	}
	secret := s.publishedSecret(apiKey)
	s.Change(secret, func() { secret.Data = encoded.Data })
}

// freezeWatches holds back every watch of every replica until the test ends.
func (s tenant) freezeWatches() {
	for _, proxy := range shared.proxies {
		proxy.FreezeWatches()
		s.T.Cleanup(proxy.ThawWatches)
	}
}

// deadKeys are keys that a 200 has declared dead.
type deadKeys struct {
	mu   sync.Mutex
	keys []string
}

func (g *deadKeys) add(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys = append(g.keys, key)
}

// pick returns the n-th dead key, counted around; empty while all are alive.
func (g *deadKeys) pick(n int) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.keys) == 0 {
		return ""
	}
	return g.keys[len(g.keys)-1-n%min(len(g.keys), 8)] // the latest ones are the likeliest to be missed
}

// TestRotate_DeadKeysWithFrozenWatches rotates again and again, on one replica after the
// other, while callers try dead keys on all of them.
func TestRotate_DeadKeysWithFrozenWatches(t *testing.T) {
	const rotations, leastProbes = 60, 2_000
	s := newTenant(t)
	s.Merchant("coffee")
	apiKey, initial := s.ApiKey("till", "coffee")
	s.Change(apiKey, func() { apiKey.Spec.Rotation.Trigger = "leaves a key in its overlap" })
	s.AwaitReady(apiKey)
	key := s.Delivered("till-key", "apiKey")
	for replica := range shared.replicas {
		s.eventuallyStatus(replica, key, http.StatusOK)
		s.want(s.call(replica, http.MethodGet, me, initial, ""), http.StatusOK)
	}
	s.freezeWatches()

	dead := &deadKeys{}
	var probes, unanswered, accepted atomic.Int64
	var callers sync.WaitGroup
	done := make(chan struct{})
	for caller := range 2 * len(shared.replicas) {
		callers.Go(func() {
			for n := caller; ; n++ {
				select {
				case <-done:
					if probes.Load() >= leastProbes || t.Failed() {
						return
					}
				default:
				}
				key := dead.pick(n)
				if key == "" {
					continue
				}
				switch got := s.try(n%len(shared.replicas), key); got {
				case http.StatusUnauthorized:
					probes.Add(1)
				case http.StatusServiceUnavailable: // Redis took too long on a busy machine, and nobody was let in
					unanswered.Add(1)
				default:
					accepted.Add(1)
					t.Errorf("a dead key got %d", got)
				}
			}
		})
	}
	for rotation := range rotations {
		rotated := s.call(rotation%len(shared.replicas), http.MethodPost, rotate, key, "")
		if rotated.Status != http.StatusOK {
			t.Errorf("rotation %d: status %d: %s", rotation, rotated.Status, rotated.Raw)
			break
		}
		dead.add(key)
		if rotation == 0 {
			dead.add(initial) // a rotation over HTTP ends the overlap of earlier ones
		}
		key = rotated.Body["fullKey"].(string)
		for replica := range shared.replicas {
			if got := s.try(replica, key); got != http.StatusOK {
				t.Errorf("rotation %d: replica %d answers the new key with %d", rotation, replica, got)
			}
		}
	}
	close(done)
	callers.Wait()
	t.Logf("%d rotations, %d probes with dead keys, %d accepted, %d not answered",
		rotations, probes.Load(), accepted.Load(), unanswered.Load())
}

// keyCall is one call with a key, and what came of it. Keys are numbered in the order of their issue.
type keyCall struct {
	rotate bool
	key    int
}

type keyAnswer struct {
	accepted bool
	issued   int // by an accepted rotation
	// unknown is a rotation that was answered 503: whether it was done, or will be, cannot be known.
	unknown bool
}

// lostKey is in the register after a rotation whose answer nobody has.
const lostKey = -1

// keyRegister is an ApiKey as its callers must see it: one register that holds the live key.
// Authenticate reads it, rotate replaces it if it still holds the caller's key.
var keyRegister = porcupine.NondeterministicModel{
	Init: func() []any { return []any{0} },
	Step: func(state, input, output any) []any {
		live, call, answer := state.(int), input.(keyCall), output.(keyAnswer)
		switch {
		case answer.unknown && call.key == live:
			return []any{live, lostKey}
		case answer.unknown:
			return []any{live}
		case answer.accepted != (call.key == live):
			return nil
		case call.rotate && answer.accepted:
			return []any{answer.issued}
		}
		return []any{live}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// issuedKeys numbers keys as they are issued.
type issuedKeys struct {
	mu   sync.Mutex
	keys []string
}

func (i *issuedKeys) add(key string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = append(i.keys, key)
	return len(i.keys) - 1
}

// recent returns one of the last few keys, the n-th counted back and around.
func (i *issuedKeys) recent(n int) (int, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	number := len(i.keys) - 1 - n%min(len(i.keys), 3)
	return number, i.keys[number]
}

// TestRotate_Linearizable lets callers rotate and authenticate at will on all
// replicas and checks that the answers fit one register, whatever the watches bring meanwhile.
func TestRotate_Linearizable(t *testing.T) {
	t.Run("with watches at work", func(t *testing.T) { checkRegister(t, func(tenant) {}) })
	t.Run("with one watch frozen", func(t *testing.T) {
		checkRegister(t, func(s tenant) {
			shared.proxies[0].FreezeWatches()
			s.T.Cleanup(shared.proxies[0].ThawWatches)
		})
	})
	t.Run("with every watch frozen", func(t *testing.T) { checkRegister(t, tenant.freezeWatches) })
}

func checkRegister(t *testing.T, disturb func(tenant)) {
	t.Helper()
	const callers, callsEach = 6, 150
	s := newTenant(t)
	_, first := s.till()
	disturb(s)
	issued := &issuedKeys{}
	issued.add(first)
	start := time.Now()
	histories := make([][]porcupine.Operation, callers)
	var running sync.WaitGroup
	for caller := range callers {
		running.Go(func() {
			for n := range callsEach {
				call := keyCall{rotate: (n+caller)%5 == 0}
				back := n + caller
				if call.rotate {
					back = 0 // the latest key, which others may be rotating as well
				}
				number, key := issued.recent(back)
				call.key = number
				operation := porcupine.Operation{ClientId: caller, Input: call, Call: int64(time.Since(start))}
				answer, known := s.ask((n+caller)%len(shared.replicas), call, key, issued)
				if !known {
					continue
				}
				operation.Output, operation.Return = answer, int64(time.Since(start))
				if answer.unknown {
					operation.Return = int64(time.Hour)
				}
				histories[caller] = append(histories[caller], operation)
			}
		})
	}
	running.Wait()
	var history []porcupine.Operation
	for _, h := range histories {
		history = append(history, h...)
	}
	if result := porcupine.CheckOperationsTimeout(keyRegister.ToModel(), history, 2*time.Minute); result != porcupine.Ok {
		t.Errorf("%d calls, %d keys issued: the history is %s, want one that fits a register", len(history), len(issued.keys), result)
	}
}

// ask makes a call. A 503 to an authentication says nothing: on a busy machine Redis may not answer in time.
// Neither does a 429: an ApiKey rotates once a second.
func (s tenant) ask(replica int, call keyCall, key string, issued *issuedKeys) (answer keyAnswer, known bool) {
	s.T.Helper()
	if !call.rotate {
		status := s.try(replica, key)
		if status != http.StatusOK && status != http.StatusServiceUnavailable {
			s.mustBe401(status)
		}
		return keyAnswer{accepted: status == http.StatusOK}, status != http.StatusServiceUnavailable
	}
	got := s.call(replica, http.MethodPost, rotate, key, "")
	switch got.Status {
	case http.StatusOK:
		return keyAnswer{accepted: true, issued: issued.add(got.Body["fullKey"].(string))}, true
	case http.StatusServiceUnavailable:
		return keyAnswer{unknown: true}, true
	case http.StatusTooManyRequests:
		return keyAnswer{}, false
	default:
		s.mustBe401(got.Status)
		return keyAnswer{}, true
	}
}

// mustBe401 marks the test as failed for any other status: it would prove nothing about keys.
func (s tenant) mustBe401(status int) {
	if status != http.StatusUnauthorized {
		s.T.Errorf("refused with %d, want 401", status)
	}
}

// issue rotates a key on one replica's internal listener, as the console does.
func (s tenant) issue(replica int, token string, key *v1alpha1.ApiKey, generation, overlapSeconds int64) fixture.Answer {
	s.T.Helper()
	path, body := fixture.RotateByID(key, generation, overlapSeconds)
	return s.send(shared.replicas[replica].Internal, http.MethodPost, path, token, body)
}

// firstKey issues the first key of an ApiKey, and waits until every replica accepts it: the ApiKey itself reaches a replica by its watch.
func (s tenant) firstKey(issuer string, apiKey *v1alpha1.ApiKey) string {
	s.T.Helper()
	key := s.want(s.issue(0, issuer, apiKey, 1, 0), http.StatusOK).Text("fullKey")
	s.eventuallyEverywhere(key, http.StatusOK)
	return key
}

// TestIssue_KeyWithoutSecret goes the console's way: an ApiKey, its first key, a charge, a rotation with an overlap, and the end of
// the old key.
func TestIssue_KeyWithoutSecret(t *testing.T) {
	s := newTenant(t)
	s.Merchant("coffee")
	issuer := s.IssuerToken()
	apiKey := s.Unissued("till", "coffee")

	first := s.firstKey(issuer, apiKey)
	for replica := range shared.replicas {
		s.charge(replica, first)
	}
	second := s.want(s.issue(1, issuer, apiKey, 2, 3600), http.StatusOK).Text("fullKey")
	for replica := range shared.replicas {
		s.charge(replica, first)
		s.charge(replica, second)
	}
	third := s.want(s.issue(0, issuer, apiKey, 3, 0), http.StatusOK).Text("fullKey")
	for replica := range shared.replicas {
		for _, dead := range []string{first, second} {
			if got := s.try(replica, dead); got != http.StatusUnauthorized {
				t.Errorf("replica %d answers %d to a key that has ended", replica, got)
			}
		}
		s.charge(replica, third)
	}

	s.Eventually("the status shows the rotations", func() bool {
		s.AwaitReady(apiKey)
		return apiKey.Status.KeyGeneration == 4
	})
	last := apiKey.Status.LastRotation
	if last.Cause != v1alpha1.RotationAPI || last.Actor != "ann" || apiKey.Status.Prefix != third[:25] {
		t.Errorf("status: %+v, prefix %s", last, apiKey.Status.Prefix)
	}
	var secrets corev1.SecretList
	if err := s.Kube.List(t.Context(), &secrets, client.InNamespace(s.Namespace)); err != nil || len(secrets.Items) > 0 {
		t.Errorf("the tenant has %d Secrets, %v", len(secrets.Items), err)
	}
}

// TestIssue_LoserGets409 lets both press the button that they see, on different replicas.
func TestIssue_LoserGets409(t *testing.T) {
	s := newTenant(t)
	s.Merchant("coffee")
	issuer := s.IssuerToken()
	apiKey := s.Unissued("till", "coffee")
	s.firstKey(issuer, apiKey)
	for generation := int64(2); generation <= 11; generation++ {
		var answers [2]fixture.Answer
		var both sync.WaitGroup
		for i := range answers {
			both.Go(func() { answers[i] = s.issue(i, issuer, apiKey, generation, 0) })
		}
		both.Wait()
		winner, loser := answers[0], answers[1]
		if winner.Status != http.StatusOK {
			winner, loser = loser, winner
		}
		s.want(winner, http.StatusOK)
		if s.want(loser, http.StatusConflict).Body["generation"] != float64(generation+1) {
			t.Errorf("the loser reads %s", loser.Raw)
		}
		for replica := range shared.replicas {
			s.charge(replica, winner.Text("fullKey"))
		}
	}
}
