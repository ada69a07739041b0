package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/load"
)

// checked counts responses.
type checked struct {
	Asked       int      `json:"asked"`
	Unavailable int      `json:"unavailable"` // status 503: the client has to retry
	Wrong       int      `json:"wrong"`
	Examples    []string `json:"examples,omitempty"` // the first few wrong ones

	sessions []string // a pending one of each merchant
	orders   []order  // the requests that created them
}

func (c *checked) add(other checked) {
	const few = 5
	c.Asked += other.Asked
	c.Unavailable += other.Unavailable
	c.Wrong += other.Wrong
	c.Examples = append(c.Examples, other.Examples...)
	c.Examples = c.Examples[:min(few, len(c.Examples))]
}

// order is a session to create.
type order struct {
	merchant merchant
	once     string // the Idempotency-Key
	ref      string
	cents    int
}

func (o order) request(once string) load.Request {
	body := fmt.Sprintf(`{"amountCents": %d, "orderRef": %q, "taxCents": 20, "tipCents": 10}`, o.cents, o.ref)
	return fixture.CreateSession(o.merchant.key, body, "Idempotency-Key: "+once)
}

// check creates a session for every merchant, repeats that with the same Idempotency-Key, reads the session as merchant, as payer and
// as another merchant (404), and creates and cancels another one. It checks every response. name makes the sessions differ from
// those of other calls.
func (b *bench) check(ctx context.Context, s *side, all []merchant, name string) checked {
	const checkers = 16
	sum := checked{sessions: make([]string, len(all)), orders: make([]order, len(all))}
	var mu sync.Mutex
	_ = fixture.Each(ctx, checkers, len(all), func(ctx context.Context, i int) error { // it never fails
		c := checker{ask: func(request load.Request) (load.Answer, error) { return request.Do(ctx, b.HTTP, "http://"+s.Address) }}
		o := order{all[i], fmt.Sprintf("%s-%d", name, i), fmt.Sprintf("order %s %d", name, i), 100 + i}
		sum.orders[i], sum.sessions[i] = o, c.check(o, all[(i+1)%len(all)])
		mu.Lock()
		defer mu.Unlock()
		sum.add(c.checked)
		return nil
	})
	return sum
}

// checker sends the requests of one merchant.
type checker struct {
	checked

	ask func(load.Request) (load.Answer, error)
}

// answer is the part of a response that is checked.
type answer struct {
	SessionID    string `json:"sessionId"`
	Status       string `json:"status"`
	OrderRef     string `json:"orderRef"`
	MerchantName string `json:"merchantName"`
	AmountCents  int    `json:"amountCents"`
	Idempotent   bool   `json:"idempotent"`

	replayed bool
}

// check returns the id of the session that it left pending, or an empty string.
func (c *checker) check(o order, stranger merchant) (id string) {
	if !c.expect(o.request(o.once), func(a answer) bool {
		id = a.SessionID
		return id != "" && a.Status == "PENDING" && !a.replayed
	}) {
		return ""
	}
	c.expect(o.request(o.once), func(a answer) bool { return a.SessionID == id && a.replayed && a.Idempotent })
	c.expect(fixture.ReadSession(o.merchant.key, id), func(a answer) bool {
		return a.SessionID == id && a.OrderRef == o.ref && a.AmountCents == o.cents && a.Status == "PENDING"
	})
	c.expect(fixture.PublicSession(id), func(a answer) bool {
		return a.MerchantName == o.merchant.Name && a.AmountCents == o.cents && a.Status == "PENDING"
	})
	foreign := fixture.ReadSession(stranger.key, id)
	foreign.Status = http.StatusNotFound
	c.expect(foreign, func(a answer) bool { return a.SessionID == "" })
	var cancelled string
	if c.expect(o.request(o.once+"-cancelled"), func(a answer) bool {
		cancelled = a.SessionID
		return cancelled != id
	}) {
		c.expect(fixture.CancelSession(o.merchant.key, cancelled), func(a answer) bool { return a.SessionID == cancelled && a.Status == "CANCELLED" })
	}
	return id
}

// expect sends a request, counts the response, and returns whether it is right.
func (c *checker) expect(request load.Request, right func(answer) bool) bool {
	c.Asked++
	raw, err := c.ask(request)
	var a answer
	if err == nil {
		err = json.Unmarshal([]byte(raw.Body), &a)
		a.replayed = raw.Header.Get("Idempotent-Replayed") == "true"
	}
	switch {
	case err == nil && raw.Status == request.Status && right(a):
		return true
	case err == nil && raw.Status == http.StatusServiceUnavailable:
		c.Unavailable++
	default:
		c.Wrong++
		c.Examples = append(c.Examples, fmt.Sprintf("%s %s: %d %+v, %v", request.Method, request.Path, raw.Status, a, err))
	}
	return false
}

// countCommands counts the commands to Redis for each request of check.
func (b *bench) countCommands(ctx context.Context, sum *checked) float64 {
	var asked checked
	sent := fixture.Commands(ctx, func() {
		asked = b.check(ctx, b.cluster, b.merchants[:min(100, len(b.merchants))], "counted")
	}, b.cluster.nodes...)
	sum.add(asked)
	return float64(len(sent)) / float64(max(asked.Asked, 1))
}
