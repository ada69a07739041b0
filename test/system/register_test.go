package system

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

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

// TestRotateAndAuthenticateAreOneRegister lets callers rotate and authenticate at will on all
// replicas and checks that the answers fit one register, whatever the watches bring meanwhile.
func TestRotateAndAuthenticateAreOneRegister(t *testing.T) {
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

// ask makes a call. It is not known anything by a 503 to a question about a key: on a machine that is busy
// with other things Redis may not answer in time. Nor is it by a 429: an ApiKey rotates once a second.
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

// mustBe401 marks the test as failed for any other refusal: it would prove nothing about keys.
func (s tenant) mustBe401(status int) {
	if status != http.StatusUnauthorized {
		s.T.Errorf("refused with %d, want 401", status)
	}
}
