//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/audittest"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

func keyFaults() []fault {
	const promised = "after the 200 of a rotation no dead key is accepted by any replica"
	return []fault{
		{"P2", "every watch frozen", promised, under(func(*deployment, int, string) {})},
		{"P2", "watches frozen, SCRIPT FLUSH", promised, under(func(s *deployment, _ int, _ string) {
			s.must(s.keeper.ScriptFlush(s.t.Context()).Err())
		})},
		{"P2", "watches frozen, kill -9 of Redis, `appendfsync always`", promised, under(func(s *deployment, _ int, key string) {
			s.redis.Kill()
			s.redis.Start()
			s.acceptedEverywhere(key)
		})},
		{"P2", "watches frozen, kill -9 of the replica that rotated", promised, under(func(s *deployment, n int, _ string) {
			r := s.replicas[n%len(s.replicas)]
			r.kill()
			r.toKube.ThawWatches() // it could not start without
			r.restart(s.t)
			r.toKube.FreezeWatches()
		})},
		{"P2", "disabled by a tenant who prevents that a key can be issued", "no replica accepts the key 5 s later", tryDisabling},
		{"P2", "a neighbour's webhook is slow, it fills its Secrets, or changes its own keys without end", "no replica accepts a disabled or deleted key of another tenant, or one outside its Merchant's narrowed addresses, 5 s later, its Events are written; the operator stays below the memory limit of the chart", tryNeighbours},
		{"P2", "kill -9 during a rotation", "after a 200 only the new key works; without one the old key works, or a Git trigger issues another", tryCrashedRotations},
		{"P2", "kill -9 while a key is issued on the internal port", "one of two callers gets the key; after an unknown outcome the same request returns what is in force", tryCrashedIssues},
		{"P2", "record of the next version, after a rollback", "what was disabled, narrowed or suspended since is refused; a key that may be good gets 503, never 401", tryNextVersion},
	}
}

// under rotates on one replica after the other, with every watch frozen and a fault after each, while callers try dead
// keys on all of them.
func under(harm func(s *deployment, n int, key string)) func(*testing.T) (int, string) {
	return func(t *testing.T) (int, string) {
		t.Helper()
		s := deploy(t, 3, 0, durable...)
		s.Merchant("coffee")
		key := s.apiKey("till", "coffee")
		for _, r := range s.replicas {
			r.toKube.FreezeWatches()
		}
		var mu sync.Mutex
		var dead []string
		var probes, refused, accepted atomic.Int64
		stop := callers(4, func(c caller, _, i int) {
			mu.Lock()
			if len(dead) == 0 {
				mu.Unlock()
				return
			}
			tried := dead[len(dead)-1-i%min(len(dead), 8)]
			mu.Unlock()
			got, err := c.call(s.replicas[i%len(s.replicas)].public, http.MethodGet, me, tried, "")
			if err != nil {
				return
			}
			probes.Add(1)
			switch {
			case got.Status == http.StatusUnauthorized:
				refused.Add(1)
			case !unavailable(got):
				accepted.Add(1)
				t.Errorf("a dead key got %d", got.Status)
			}
		})
		defer stop()
		rounds := 5 * *intensity
		for n := range rounds {
			rotated := s.mustCall(http.StatusOK, s.replicas[n%len(s.replicas)].public, http.MethodPost, rotate, key, "")
			mu.Lock()
			dead = append(dead, key)
			mu.Unlock()
			key = shared.secret(rotated.Text("fullKey"))
			harm(s, n, key)
			s.acceptedEverywhere(key)
			target := refused.Load() + 50
			eventually(t, "dead keys are tried", func() bool { return refused.Load() >= target || t.Failed() })
		}
		stop()
		return rounds, fmt.Sprintf("%d tries of dead keys on 3 replicas, %d refused, %d unanswered for 503, %d accepted",
			probes.Load(), refused.Load(), probes.Load()-refused.Load()-accepted.Load(), accepted.Load())
	}
}

// acceptedEverywhere asks each replica for the key; only a 503 may be asked again.
func (s *deployment) acceptedEverywhere(key string) {
	s.t.Helper()
	for _, r := range s.replicas {
		client := newCaller()
		eventually(s.t, r.name+" answers", func() bool {
			got, err := client.call(r.public, http.MethodGet, me, key, "")
			if err == nil && got.Status != http.StatusOK && !unavailable(got) {
				s.t.Fatalf("%s answered the live key with %d", r.name, got.Status)
			}
			return err == nil && got.Status == http.StatusOK
		})
	}
}

// tryCrashedRotations kills the replica that rotates: when the key is published, after the answer, or at once.
func tryCrashedRotations(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0, durable...)
	s.Merchant("coffee")
	const triggers = 8 // of one ApiKey, below the limit
	var name, key string
	answers := map[string][]int64{} // the generations of answered rotations, by ApiKey
	done, undone, lost := 0, 0, 0
	rounds := 4 * *intensity
	for n := range rounds {
		if n%triggers == 0 {
			name = fmt.Sprint("till-", n)
			key, answers[name] = s.apiKey(name, "coffee"), nil
		}
		victim, other := s.replicas[n%2], s.replicas[(n+1)%2]
		before := s.generation(name)
		answered := make(chan string, 1)
		asked := make(chan struct{})
		if n%3 == 0 {
			victim.toKube.HoldUpdates()
		}
		go func() {
			close(asked)
			got, err := newCaller().call(victim.public, http.MethodPost, rotate, key, "")
			if err != nil || got.Status != http.StatusOK {
				answered <- ""
				return
			}
			answered <- got.Text("fullKey")
		}()
		<-asked
		var next string
		switch n % 3 {
		case 0: // when the new key is published, and before the replica knows
			eventually(t, "the new key is published", func() bool { return s.generation(name) > before || len(answered) > 0 })
		case 1: // after the answer
			next = <-answered
			answered <- next
		}
		victim.kill()
		victim.toKube.ReleaseUpdates()
		next = <-answered
		switch {
		case next != "":
			done++
			answers[name] = append(answers[name], before+1)
			got, err := newCaller().call(other.public, http.MethodGet, me, key, "")
			if err != nil || got.Status != http.StatusUnauthorized {
				t.Errorf("a rotation was answered, and its old key got %d, %v", got.Status, err)
			}
			key = shared.secret(next)
		default:
			got, err := newCaller().call(other.public, http.MethodGet, me, key, "")
			if err == nil && got.Status == http.StatusOK {
				undone++ // nothing happened, or it will not show before the watch
				break
			}
			lost++
		}
		victim.restart(t)
		if next == "" {
			key = s.trigger(name, fmt.Sprintf("round %d", n))
		}
		s.acceptedEverywhere(key)
	}
	for name, answered := range answers {
		s.audited(name, answered)
	}
	return rounds, fmt.Sprintf("%d answered and in force, %d not done, %d done without an answer: a trigger issued another key each time", done, undone, lost)
}

// tryCrashedIssues lets two people rotate the same generation on two replicas, one of which is killed meanwhile, and does what
// docs/rotation-api.md says.
func tryCrashedIssues(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0, durable...)
	s.Merchant("coffee")
	issuer := shared.secret(s.IssuerToken())
	apiKey := s.Unissued("till", "coffee")
	path, body := fixture.RotateByID(apiKey, 1, 0)
	first := shared.secret(s.mustCall(http.StatusOK, s.replicas[0].internal, http.MethodPost, path, issuer, body).Text("fullKey"))
	for _, r := range s.replicas { // the ApiKey itself reaches a replica by its watch
		s.accepts(r, first)
	}
	generation, unknown, answers := int64(2), 0, []int64{2}
	rounds := 4 * *intensity
	for n := range rounds {
		victim, other := s.replicas[n%2], s.replicas[(n+1)%2]
		answered := make(chan int64, 3) // one of the two people, and then each repeated request
		issue := func(r *replica, generation int64) (string, int64, bool) {
			path, body := fixture.RotateByID(apiKey, generation, 0)
			got, err := newCaller().call(r.internal, http.MethodPost, path, issuer, body)
			switch {
			case err != nil || unavailable(got):
				return "", 0, false
			case got.Status == http.StatusOK:
				answered <- generation + 1
				return shared.secret(got.Text("fullKey")), generation + 1, true
			case got.Status != http.StatusConflict:
				t.Errorf("issuing got %d %s", got.Status, got.Raw)
			}
			current, _ := got.Body["generation"].(float64)
			return "", int64(current), true
		}
		var keys [2]string
		var people sync.WaitGroup
		for i, r := range []*replica{victim, other} {
			people.Go(func() { keys[i], _, _ = issue(r, generation) })
		}
		if n%2 == 0 { // else at once
			eventually(t, "the new key is published", func() bool { return s.generation("till") > generation })
		}
		victim.kill()
		people.Wait()
		if keys[0] != "" && keys[1] != "" {
			t.Error("both got a key of one generation")
		}
		key := keys[0] + keys[1]
		for key == "" && !t.Failed() { // the key was lost with the victim: the same request, then the generation in its 409
			unknown++
			eventually(t, "issuing is answered", func() bool {
				fresh, current, known := issue(other, generation)
				if known {
					key, generation = fresh, current
				}
				return known || t.Failed()
			})
		}
		close(answered)
		for issued := range answered {
			answers = append(answers, issued)
		}
		victim.restart(t)
		s.acceptedEverywhere(key)
		generation = s.generation("till")
	}
	s.audited("till", answers)
	return rounds, fmt.Sprintf("%d issued, all in force; %d requests more, as documented, after the key was lost with its replica", rounds, unknown)
}

// trigger has a key rotated as Git does, and returns the new one once every replica takes it.
func (s *deployment) trigger(name, word string) string {
	s.t.Helper()
	var apiKey v1alpha1.ApiKey
	s.must(shared.get(s.t.Context(), s.Namespace, name, &apiKey))
	before := apiKey.DeepCopy()
	apiKey.Spec.Rotation.Trigger = word
	s.must(shared.Client.Patch(s.t.Context(), &apiKey, client.MergeFrom(before)))
	eventually(s.t, "the trigger is handled", func() bool {
		s.must(shared.get(s.t.Context(), s.Namespace, name, &apiKey))
		return apiKey.Status.ObservedTrigger == word
	})
	var secret corev1.Secret
	s.must(shared.get(s.t.Context(), s.Namespace, name+"-key", &secret))
	key := shared.secret(string(secret.Data["apiKey"]))
	for _, r := range s.replicas {
		s.accepts(r, key)
	}
	return key
}

// generation is that of a key as it is published now.
func (s *deployment) generation(name string) int64 {
	s.t.Helper()
	return s.record(name).Generation
}

func (s *deployment) record(name string) published.KeyRecord {
	s.t.Helper()
	var apiKey v1alpha1.ApiKey
	s.must(shared.get(s.t.Context(), s.Namespace, name, &apiKey))
	var secret corev1.Secret
	s.must(shared.get(s.t.Context(), kubetest.CredentialsNamespace, published.KeyName(published.ID(apiKey.UID)), &secret))
	record, err := published.DecodeKey(&secret)
	s.must(err)
	return record
}

// audited waits until the audit log has an entry for each rotation of an ApiKey, also if a process was killed meanwhile, and the one of the replica for
// each that was answered.
func (s *deployment) audited(name string, answered []int64) {
	s.t.Helper()
	record := s.record(name)
	eventuallySees(s.t, "each rotation has its entry in the audit log", func() (string, bool) {
		seen, byReplica := map[int64]bool{}, map[int64]bool{}
		for _, line := range audittest.Lines(s.t, shared.logs.String()) {
			if generation, _ := line["generation"].(float64); line["keyID"] == record.KeyID && line["change"] == "rotated" {
				seen[int64(generation)] = true
				byReplica[int64(generation)] = byReplica[int64(generation)] || line["requestID"] != nil
			}
		}
		var missing []string
		for generation := int64(2); generation <= record.Generation; generation++ {
			switch {
			case !seen[generation]:
				missing = append(missing, fmt.Sprint("none of generation ", generation))
			case slices.Contains(answered, generation) && !byReplica[generation]:
				missing = append(missing, fmt.Sprint("none of the replica that answered generation ", generation))
			}
		}
		return strings.Join(missing, ", "), len(missing) == 0
	})
}
